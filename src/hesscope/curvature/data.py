"""One loop over data: any source becomes a list of batches that is the same on every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from ..errors import refuse
from .gradient_mode import plain
from .models.random_state import random_state_kept


class Batches:
    """Batches in a fixed order, held in memory up to `cache_bytes`, read again from the source beyond that."""

    def __init__(self, source: Iterable[Any], cache_bytes: float, one_shot: bool, may_be_empty: bool = False) -> None:
        self._source = source
        self._held: list[Any] | None = []
        total = 0.0
        for batch in _undrawn(source):
            total += bytes_of(batch)
            if total > cache_bytes and not one_shot:
                self._held = None
                break
            self._held.append(batch)
        if self._held is not None and not self._held and not may_be_empty:
            refuse("data must hold at least one batch", "none", "Check the loader, or its drop_last.")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held) if self._held is not None else _undrawn(self._source)

    @property
    def single(self) -> bool:
        """Whether there is exactly one batch, in memory."""
        return self._held is not None and len(self._held) == 1

    @property
    def held(self) -> bool:
        """Whether all batches are in memory."""
        return self._held is not None


def _undrawn(source: Iterable[Any]) -> Iterator[Any]:
    """The batches of a source that hold examples; loaders draw seeds from the global random state, which is left as it
    was."""
    with random_state_kept(), torch.device("cpu"):  # where loaders draw a number, whatever torch's default device is
        batches = iter(source)
    while True:
        with random_state_kept():
            try:
                batch = next(batches)
            except StopIteration:
                return
        if examples_in(batch) != 0:
            yield batch


def as_batches(data: Any, batch_size: int, freeze: bool, cache_bytes: float, may_be_empty: bool = False) -> Batches:
    """Batches from a tensor pair (one batch), a Dataset, a DataLoader, or an iterable of batches."""
    if data is None:
        return Batches([None], cache_bytes, True)
    if is_example_tuple(data, may_be_empty):
        return Batches([tuple(data)] if len(data[0]) else [], cache_bytes, True, may_be_empty)
    if isinstance(data, DataLoader):
        if _shuffles(data) and not freeze:
            refuse(
                "data must come in the same order on every pass",
                "a DataLoader that shuffles or samples at random",
                "Pass shuffle=False, or Problem.of(..., freeze=True) to keep one pass in memory.",
            )
        return Batches(data, cache_bytes, freeze, may_be_empty)
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        loader = DataLoader(data, batch_size=batch_size, shuffle=False)
        return Batches(loader, cache_bytes, False, may_be_empty)
    if isinstance(data, Mapping):
        return Batches([data], cache_bytes, True)
    if isinstance(data, np.ndarray) or (isinstance(data, tuple) and data and isinstance(data[0], np.ndarray)):
        refuse("inputs and targets must be tensors", "ndarray", "Pass data=(torch.from_numpy(x), torch.from_numpy(y)).")
    if isinstance(data, tuple) and data and isinstance(data[0], Tensor):
        other = [type(part).__name__ for part in data if not isinstance(part, Tensor)]
        if other:
            refuse("inputs and targets must be tensors", f"{other[0]}", "Use torch.as_tensor(targets), a tensor.")
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        refuse(
            "data must be tensors, a Dataset, a DataLoader, an iterable of batches or None",
            f"{type(data).__name__}",
            "Pass data=(inputs, targets).",
        )
    if isinstance(data, Tensor):  # each of its rows would be taken for a batch
        do = "Pass data=(inputs, targets), or data=[inputs] for one batch without targets."
        refuse("data must be two tensors or a list of batches", "one Tensor", do)
    # An iterator can be walked only once, so it is kept; a list can be walked again.
    return Batches(data, cache_bytes, isinstance(data, Iterator | list | tuple), may_be_empty)


def checked_batch_size(batch_size: Any) -> int:
    """A positive whole number."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        refuse("batch_size must be a positive whole number", f"{batch_size!r}", "Try batch_size=1024.")
    return batch_size


def is_example_tuple(data: Any, may_be_empty: bool = False) -> bool:
    """Whether `data` is (inputs, ..., targets), or (inputs,), as tensors over one and the same set of examples."""
    if not isinstance(data, tuple | list) or not data or not all(isinstance(t, Tensor) for t in data):
        return False
    sizes = {len(t) if t.ndim else -1 for t in data}
    if isinstance(data, tuple) and (len(data) == 2 or len(sizes) == 1):
        if len(sizes) != 1:
            refuse(
                "inputs and targets must have as many examples",
                f"{[tuple(t.shape) for t in data]}",
                "Make the first dimensions equal; or pass data=[(inputs, targets)], one batch that is never cut.",
            )
        if sizes == {0} and not may_be_empty:
            refuse("data must hold at least one example", "0 examples", "Check how the tensors were made.")
        return True
    return False


def in_batches(data: tuple[Tensor, ...], batch_size: int) -> list[tuple[Tensor, ...]]:
    """Tensors over the same examples, cut in nearly equal batches of about `batch_size`."""
    total = len(data[0])
    parts = max(1, round(total / batch_size)) if total > batch_size else 1
    bounds = [round(i * total / parts) for i in range(parts + 1)]
    return [tuple(t[a:b] for t in data) for a, b in pairwise(bounds)]


def _shuffles(loader: DataLoader[Any]) -> bool:
    if isinstance(loader.dataset, IterableDataset):
        return False
    sampler = loader.sampler
    if loader.batch_sampler is not None and loader.batch_size is None:
        sampler = getattr(loader.batch_sampler, "sampler", sampler)
    return isinstance(sampler, RandomSampler) or (
        not isinstance(sampler, SequentialSampler)
        and getattr(sampler, "shuffle", type(sampler).__name__ != "_InfiniteConstantSampler")
    )


def map_tensors(batch: Any, change: Callable[[Tensor], Any]) -> Any:
    """The same nesting with every tensor changed."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return _like(batch, {key: map_tensors(value, change) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(value, change) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(map_tensors(value, change) for value in batch)
    return batch


def tensors_of(batch: Any) -> list[Tensor]:
    """Every tensor of a nested batch; of a sparse one, the dense tensors it is made of."""
    found: list[Tensor] = []
    map_tensors(batch, lambda t: found.extend(dense_parts(t)))
    return found


def dense_parts(t: Tensor) -> tuple[Tensor, ...]:
    """The tensor itself, or what holds the places and values of a sparse one."""
    if t.layout == torch.strided:
        return (t,)
    if t.layout == torch.sparse_coo:
        return t._indices(), t._values()
    by_row = t.layout in (torch.sparse_csr, torch.sparse_bsr)
    places = (t.crow_indices(), t.col_indices()) if by_row else (t.ccol_indices(), t.row_indices())
    return (*places, t.values())


def examples_in(batch: Any) -> int | None:
    """The common first dimension of all tensors, or None where there is none to split along, as in sparse ones."""
    sizes: set[int] = set()
    map_tensors(batch, lambda t: sizes.add(t.shape[0] if t.ndim and t.layout == torch.strided else -1))
    return sizes.pop() if len(sizes) == 1 and -1 not in sizes else None


def halves(batch: Any) -> list[Any] | None:
    """The two halves of a batch along its examples; None where it cannot be cut."""
    size = examples_in(batch)
    if size is None or size < 2:
        return None
    middle = size // 2
    return [map_tensors(batch, lambda t: t[:middle]), map_tensors(batch, lambda t: t[middle:])]


def in_batches_of(batch: Any, most: int | None) -> list[Any]:
    """A batch in nearly equal parts of at most `most` examples; as it is where it has no more, or for None."""
    size = examples_in(batch)
    if size is None or most is None or size <= most:
        return [batch]
    parts = -(-size // most)
    bounds = [round(i * size / parts) for i in range(parts + 1)]
    return [map_tensors(batch, partial(Tensor.narrow, dim=0, start=a, length=b - a)) for a, b in pairwise(bounds)]


def take(batch: Any, index: Tensor) -> Any:
    """The examples at these places along the first axis."""
    return map_tensors(batch, lambda t: t[index.to(t.device)])


def joined(first: Any, second: Any) -> Any | None:
    """Two batches of the same form as one; None where their forms differ."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        fits = first.ndim and first.shape[1:] == second.shape[1:] and first.dtype == second.dtype
        return torch.cat([first, second]) if fits else None
    if isinstance(first, Mapping) and isinstance(second, Mapping) and set(first) == set(second):
        items = {key: joined(first[key], second[key]) for key in first}
        return _like(first, items) if all(value is not None for value in items.values()) else None
    if isinstance(first, tuple | list) and isinstance(second, tuple | list) and len(first) == len(second):
        parts: list[Any] = [joined(a, b) for a, b in zip(first, second, strict=True)]
        if any(part is None for part in parts):
            return None
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return None


def _like(batch: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    try:
        return type(batch)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def in_larger_batches(batches: Iterable[Any], most: int) -> Iterator[tuple[Any, int]]:
    """Neighbouring batches joined while they have at most `most` examples together; each with how many it was."""
    waiting: Any = None
    count = 0
    for batch in batches:
        size, more = examples_in(waiting) if count else None, examples_in(batch)
        whole = joined(waiting, batch) if size is not None and more is not None and size + more <= most else None
        if whole is not None:
            waiting, count = whole, count + 1
            continue
        if count:
            yield waiting, count
        waiting, count = batch, 1
    if count:
        yield waiting, count


def first_examples(batch: Any, count: int) -> Any:
    """The first `count` examples of a batch (all of it where it cannot be cut)."""
    size = examples_in(batch)
    return batch if size is None or size <= count else map_tensors(batch, lambda t: t[:count])


def bytes_of(batch: Any) -> int:
    """What all tensors of a batch take, without what they are views of."""
    return sum(t.numel() * t.element_size() for t in tensors_of(batch))


def to_device(batch: Any, device: torch.device, dtype: torch.dtype | None = None) -> Any:
    """Every tensor on `device`; floating-point ones as `dtype` if one is given."""
    return map_tensors(
        batch, lambda t: plain(t.to(device=device, dtype=dtype if dtype and t.is_floating_point() else None))
    )


def few_of(batches: Iterable[Any], examples: int, divisible: Callable[[], bool]) -> list[Any]:
    """The first `examples` examples, or whole batches where they cannot be cut."""
    kept: list[Any] = []
    for batch in batches:
        if examples <= 0:
            break
        size = examples_in(batch) or 1
        kept.append(first_examples(batch, examples) if size > examples and divisible() else batch)
        examples -= size
    return kept
