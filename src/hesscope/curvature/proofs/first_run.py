"""What a forward pass does besides computing: read the user's own model, change its tensors, run again backward."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter

from ...errors import refuse
from ..dispatched import EveryOperation
from ..models.wide_precision import CASTS


def storage_of(tensor: Tensor) -> int | None:
    """Where the numbers of a tensor lie; None where it has none of its own."""
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None


def places(tensors: Mapping[str, Tensor]) -> dict[int, str]:
    """The storages of named tensors."""
    found = ((storage_of(tensor), name) for name, tensor in tensors.items())
    return {place: name for place, name in found if place is not None}


class _Operations(EveryOperation):  # type: ignore[no-untyped-call]
    """Looks at the tensors that every operation reads and writes."""

    def __init__(self, foreign: Mapping[int, str], own: Mapping[int, str]) -> None:
        super().__init__()
        self._foreign, self._own = foreign, own
        self.read: set[str] = set()
        self.used: set[str] = set()
        self.written: set[str] = set()
        self.scaled_by_frequency = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        here = {
            storage_of(value) for value in tree_iter((args, kwargs) if kwargs else args) if isinstance(value, Tensor)
        }
        self.read |= {self._foreign[place] for place in here & self._foreign.keys() if place is not None}
        self.used |= {self._own[place] for place in here & self._own.keys() if place is not None}
        writes, frequencies = _roles(func)
        for index in (place for place in writes if place < len(args)):
            self.written |= self._among(self._own, tree_iter(args[index]))
        self.scaled_by_frequency |= any(args[index] is True for index in frequencies if index < len(args))
        return func(*args, **kwargs)

    @staticmethod
    def _among(places: Mapping[int, str], values: Iterable[Any]) -> set[str]:
        found = (storage_of(value) for value in values if isinstance(value, Tensor))
        return {places[place] for place in found if place is not None and place in places}


@cache
def _roles(func: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which arguments of an operation it writes to, and which say that gradients are divided by frequencies."""
    arguments = list(enumerate(func._schema.arguments))
    writes = tuple(i for i, one in arguments if one.alias_info is not None and one.alias_info.is_write)
    return writes, tuple(i for i, one in arguments if one.name == "scale_grad_by_freq")


class _Calls(TorchFunctionMode):
    """Notices whether what the backward pass needs is packed away, as activation checkpointing does, which floating-point
    types are asked for, and whether there is attention."""

    def __init__(self) -> None:
        super().__init__()
        self.recomputed = self.attends = False
        self.types: set[torch.dtype] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.recomputed = self.recomputed or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        self.attends |= func in (F.scaled_dot_product_attention, F.multi_head_attention_forward)
        if func in CASTS:
            self.types.add(CASTS[func])
        self.types |= {a for a in (*args, *(kwargs or {}).values()) if isinstance(a, torch.dtype)}
        if torch.is_autocast_enabled("cpu"):
            self.types.add(torch.get_autocast_dtype("cpu"))
        return func(*args, **(kwargs or {}))


class FirstRun:
    """What one forward pass was seen to do: tensors of the user's model it read, own ones it wrote."""

    def __init__(self, foreign: Mapping[str, Tensor], own: Mapping[str, Tensor], batch: Iterable[Tensor]) -> None:
        data = {storage_of(tensor) for tensor in batch}
        self._operations = _Operations(
            {place: name for place, name in places(foreign).items() if place not in data}, places(own)
        )
        self._calls = _Calls()

    @contextmanager
    def watching(self) -> Iterator[None]:
        with self._operations, self._calls:
            yield

    @property
    def read(self) -> set[str]:
        return self._operations.read

    @property
    def used(self) -> set[str]:
        """Own tensors that took part."""
        return self._operations.used

    @property
    def recomputed(self) -> bool:
        return self._calls.recomputed

    @property
    def attends(self) -> bool:
        return self._calls.attends

    @property
    def casts_to_float32(self) -> bool:
        """Whether it asks for float32 somewhere, and for nothing coarser."""
        return torch.float32 in self._asked and not self.casts_to_less

    @property
    def casts_to_less(self) -> bool:
        """Whether it asks for anything coarser than float32."""
        return not self._asked <= {torch.float32, torch.float64}

    @property
    def _asked(self) -> set[torch.dtype]:
        return {dtype for dtype in self._calls.types if dtype.is_floating_point}

    @property
    def written(self) -> set[str]:
        return self._operations.written

    def refuse_other_functions(self, parameters: Iterable[str]) -> None:
        """Refuse a forward pass whose derivative is not that of the loss it computes."""
        changed = sorted(self.written & set(parameters))
        if changed:
            refuse(
                "a forward pass must leave the parameters as they are",
                f"one that changes {', '.join(map(repr, changed[:3]))} (as Embedding(max_norm=...) does)",
                "Renormalise or clip after each step of training instead, and pass the model without it.",
            )
        if self._operations.scaled_by_frequency:
            refuse(
                "gradients must be those of the loss",
                "an embedding with scale_grad_by_freq=True, which divides them by how often a token occurs",
                "Set scale_grad_by_freq=False: its Hessian is that of the loss you minimise.",
            )


@contextmanager
def reentrant_checkpoints_refused() -> Iterator[None]:
    """Refuse checkpointing that hides parameters from the graph: it says so in a warning, which is an error here."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for one in caught:
        if "None of the inputs have requires_grad=True" in str(one.message):
            refuse_reentrant()
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def refuse_reentrant() -> None:
    refuse(
        "activation checkpointing must keep the parameters in the graph",
        "torch.utils.checkpoint with use_reentrant=True",
        "Pass use_reentrant=False: it recomputes the same, and can be differentiated twice.",
    )


def nodes_of(output: Tensor) -> Iterator[Any]:
    """Every node of the graph behind a tensor."""
    seen: set[Any] = set()
    waiting = [output.grad_fn] if output.grad_fn is not None else []
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [parent for parent, _ in node.next_functions if parent is not None]
