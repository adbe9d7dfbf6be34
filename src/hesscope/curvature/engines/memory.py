"""One knob for memory: how many bytes kept graphs may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from ...arguments import as_float, shown
from ...errors import refuse
from ...memory import bytes_in_text, free_bytes
from ..data import dense_parts

FRACTION = 0.5


def parse_bytes(memory: float | str | None, device: torch.device) -> int:
    """Bytes from a count, a text such as "8GB", a fraction of free memory, or None (half of what is free)."""
    if memory is None:
        memory = FRACTION
    if isinstance(memory, str):
        found = bytes_in_text(memory)
        if found is None:
            refuse("memory must be bytes, a fraction or a text like '8GB'", f"{memory!r}", "Try memory='4GB'.")
        return found
    amount = as_float(memory)
    if amount is None or not 0 <= amount < inf:
        refuse("memory must be a number >= 0", shown(memory), "0 keeps no graph; 0.5 is half of the free memory.")
    return int(amount * free_bytes(device)) if amount <= 1 else int(amount)


class MemoryBudget:
    """What the operators of one problem have kept, against one limit."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    def reserve(self, size: int) -> bool:
        """Reserve `size` bytes if they fit."""
        if self.used + size > self.limit:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        self.used -= size

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)


class _Saved:
    """A tensor that a node of a graph saved; it lives as long as the node."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


@contextmanager
def counting_saved_bytes(without: set[int]) -> Iterator[Callable[[], int]]:
    """Count the distinct bytes that autograd saved inside the block and still holds, but for the storages at `without`.

    Graphs that were used up on the way have given back what they saved, and others may have got the same addresses.
    """
    saved: WeakSet[_Saved] = WeakSet()

    def pack(tensor: Tensor) -> _Saved:
        held = _Saved(tensor.detach())  # the tensor itself could close a cycle through its own graph node
        saved.add(held)
        return held

    def count() -> int:
        parts = (part for held in saved for part in dense_parts(held.tensor))
        storages = {s.data_ptr(): s.nbytes() for s in (part.untyped_storage() for part in parts)}
        return sum(size for place, size in storages.items() if place not in without)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.tensor):
        yield count


def bytes_in_graph(graph: Any, without: set[int]) -> int:
    """The same of a graph that is there already, as far as its nodes tell what they saved."""
    tensors = [t for value in vars(graph).values() for t in (value if isinstance(value, tuple) else (value,))]
    waiting = [t.grad_fn for t in tensors if isinstance(t, Tensor) and t.grad_fn is not None]
    met, seen = set(waiting), {}
    while waiting:
        node = waiting.pop()
        for saved in (part for tensor in _saved_by(node) for part in dense_parts(tensor)):
            if saved.untyped_storage().data_ptr() not in without:
                seen[saved.untyped_storage().data_ptr()] = saved.untyped_storage().nbytes()
        new = {behind for behind, _ in node.next_functions if behind is not None} - met
        met |= new
        waiting += new
    return sum(seen.values())


def _saved_by(node: Any) -> Iterator[Tensor]:
    names = [name for name in dir(node) if name.startswith("_saved_") or name == "saved_tensors"]
    for name in names:
        try:
            saved = getattr(node, name)
        except RuntimeError:
            continue  # changed in place since: the backward pass says so
        yield from (t for t in (saved if isinstance(saved, tuple | list) else (saved,)) if isinstance(t, Tensor))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on any device."""
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)
    )
