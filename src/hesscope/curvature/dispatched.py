"""A look at every operation that torch runs."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class EveryOperation(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation inside its block, and does not load torch's compiler for it.

    To keep that compiler out of what a mode does, torch loads it at the first operation: 1.5 seconds in every process. Nothing
    is compiled where we look, as compiled parts run the way they were written (`models/conditions.py`).
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
