"""Other values for the tensors of a model: from a state dict, a file or a folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from torch import Tensor, nn

from ...arguments import listed
from ..gradient_mode import differentiable
from .checkpoint_files import holds_adapters, read_checkpoint
from .state import from_checkpoint, names_in_checkpoints


@differentiable()
def new_tensors(
    model: nn.Module,
    state: Mapping[str, Tensor] | str | os.PathLike[str],
    own: Mapping[str, Tensor],
    needed: Iterable[str],
) -> dict[str, Tensor]:
    """The tensors of `own` that `state` replaces. Arrays by hand (.npz) may be some of them, a dict must hold those that
    are `needed`, what trainers write is everything, and the adapters of PEFT are what is needed of them."""
    if not isinstance(state, str | os.PathLike):
        return from_checkpoint(model, state, own, needed)
    if str(state).endswith(".npz"):
        needed = []
    elif not (Path(state).exists() and holds_adapters(state)):
        needed = names_in_checkpoints(model)
    return from_checkpoint(model, read_checkpoint(state), own, needed)


def warn_of_kept_statistics(model: nn.Module, replaced: Collection[str]) -> None:
    """Other weights with the running statistics of the old ones are a network that was never trained: say so."""
    used = (
        f"{path}.{local}".lstrip(".")
        for path, module in model.named_modules()
        for local, _ in module.named_buffers(recurse=False)
        if local.startswith("running_") and not module.training
    )
    kept = [name for name in used if name not in replaced]
    if kept and any(name in replaced for name, _ in model.named_parameters()):
        warnings.warn(
            f"other parameters with the running statistics of before: {listed(kept)}. Give the whole state_dict(), which "
            "brings them; or partial=True, if they are meant.",
            stacklevel=3,
        )
