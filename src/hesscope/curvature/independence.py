"""Do examples see each other? Only where they do not may a batch be cut, joined or halved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import refuse
from ..rng import Rng
from .data import examples_in, joined, take
from .evaluation import ScalarLoss, value_of
from .losses.base import OutputLoss

EXAMPLES = 8
_DIGITS = {torch.float64: 1e-9, torch.float32: 1e-4}
Evaluate = Callable[[Any], OutputLoss | ScalarLoss]


def rounding_of(dtype: torch.dtype) -> float:
    """How far two ways of computing the same number may lie apart, relative to its size."""
    return _DIGITS.get(dtype, 3e-2)


def scattered_examples(batches: Iterable[Any], count: int, rng: Rng) -> list[Any] | None:
    """`count` examples drawn at random over all batches, together where their shapes allow it; None where a batch has
    no examples along its first axis."""
    sizes = [examples_in(batch) for batch in batches]
    if any(size is None for size in sizes):
        return None
    known = [size or 0 for size in sizes]
    places = torch.randperm(sum(known), generator=rng.torch())[:count].sort().values
    groups: list[Any] = []
    start = 0
    for batch, size in zip(batches, known, strict=False):
        here = places[(places >= start) & (places < start + size)] - start
        start += size
        if len(here):
            _add(groups, take(batch, here))
    return groups


def _add(groups: list[Any], piece: Any) -> None:
    for index, group in enumerate(groups):
        whole = joined(group, piece)
        if whole is not None:
            groups[index] = whole
            return
    groups.append(piece)


def are_independent(evaluate: Evaluate, groups: Sequence[Any], rng: Rng) -> bool:
    """Whether outputs, loss sums and counts of examples together are those of the examples apart.

    The examples are shuffled and taken apart in uneven pieces, so that neither their order (a causal model whose first
    axis is time) nor one lucky row decides.
    """
    tested = False
    for group in groups:
        size = examples_in(group) or 0
        if size < 2:
            continue
        tested = True
        order = torch.randperm(size, generator=rng.torch())
        pieces = [take(group, order[a:b]) for a, b in _uneven(size)]
        try:
            whole, parts = evaluate(take(group, order)), [evaluate(piece) for piece in pieces]
        except Exception:
            return False  # a model that cannot run parts of a batch
        if not _adds_up(whole, parts):
            return False
    return tested


def _uneven(size: int) -> list[tuple[int, int]]:
    first = 1
    second = min(size, 1 + max(1, (size - 1) * 3 // 7))
    return [(a, b) for a, b in ((0, first), (first, second), (second, size)) if b > a]


def _adds_up(whole: OutputLoss | ScalarLoss, parts: Sequence[OutputLoss | ScalarLoss]) -> bool:
    values, value = [value_of(part) for part in parts], value_of(whole)
    counts = sum(part.count for part in parts)
    digits = rounding_of(_dtype_of(whole))
    counted = abs(counts - whole.count) <= 1e-6 * abs(whole.count)
    size = sum(abs(v) for v in values) + abs(value)
    summed = abs(sum(values) - value) <= digits * size
    if isinstance(whole, ScalarLoss):
        if counted and not summed and whole.count > 0:
            mean = sum(part.count * v for part, v in zip(parts, values, strict=True)) / whole.count
            if abs(mean - value) <= digits * size:
                refuse(
                    "loss(model, batch) must return the sum over the batch and what a mean divides by",
                    "a mean in the place of the sum: for a batch it is the mean of its parts",
                    "Multiply it by the count, or return reduction='sum'.",
                )
        return counted and summed
    f = [part.f for part in parts if isinstance(part, OutputLoss)]
    return counted and summed and same_numbers(torch.cat(f), whole.f)


def same_numbers(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding, measured by the largest entry."""
    if a.shape != b.shape:
        return False
    if not a.numel():
        return True
    size = float(b.detach().abs().max())
    return float((a.detach() - b.detach()).abs().max()) <= rounding_of(b.dtype) * size


def _dtype_of(terms: OutputLoss | ScalarLoss) -> torch.dtype:
    return terms.total.dtype if isinstance(terms, ScalarLoss) else terms.f.dtype
