"""Do examples see each other? Only where they do not may a batch be cut, joined or halved."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import refuse
from ...rng import Rng
from ..data import examples_in, joined, take, tensors_of
from ..losses.base import OutputLoss
from ..models.evaluation import ScalarLoss, value_of

EXAMPLES = 8
_FEWEST = 3  # that are taken apart in three pieces
_OUTPUT_BYTES = 100_000_000  # of examples that are looked at together; about ten times as much lives at once
_DIGITS = {torch.float64: 1e-9, torch.float32: 1e-4}
Evaluate = Callable[[Any], OutputLoss | ScalarLoss]


def rounding_of(dtype: torch.dtype) -> float:
    """How far two ways of computing the same number may lie apart, relative to its size."""
    return _DIGITS.get(dtype, 3e-2)


def examples_to_look_at(batch: Any, tensors: Iterable[Tensor]) -> int:
    """How many examples are looked at closely: fewer where each is a text of many tokens and the vocabulary is large, as
    their logits in float64 fill memory. A guess at their size, from numbers of tokens and the longest of `tensors`."""
    size = max(examples_in(batch) or 1, 1)
    tokens = max((t.numel() / size for t in tensors_of(batch) if not t.is_floating_point()), default=1.0)
    width = max((len(t) for t in tensors if t.ndim), default=1)
    return max(_FEWEST, min(EXAMPLES, int(_OUTPUT_BYTES / (8 * max(tokens, 1.0) * width))))


def scattered_examples(batches: Iterable[Any], count: int, rng: Rng) -> list[Any] | None:
    """`count` examples drawn at random over all batches, together where their shapes allow it; None where a batch has
    no examples along its first axis."""
    sizes = [examples_in(batch) for batch in batches]
    if any(size is None for size in sizes):
        return None
    known = [size or 0 for size in sizes]
    places = torch.randperm(sum(known), generator=rng.torch(), device="cpu")[:count].sort().values
    pieces: list[Any] = []
    start = 0
    for batch, size in zip(batches, known, strict=False):
        here = places[(places >= start) & (places < start + size)] - start
        start += size
        if len(here):
            pieces.append(take(batch, here))
    return together(pieces)


def together(pieces: Iterable[Any]) -> list[Any]:
    """Pieces of batches, joined where their shapes allow it."""
    groups: list[Any] = []
    for piece in pieces:
        _add(groups, piece)
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
        order = torch.randperm(size, generator=rng.torch(), device="cpu")
        pieces = [take(group, order[a:b]) for a, b in _uneven(size)]
        try:
            whole, parts = _Sum(evaluate(take(group, order))), []
            for piece in pieces:
                parts.append(_Sum(evaluate(piece)))
                if not parts[-1].follows(whole):
                    return False
        except Exception:
            return False  # a model or a loss that cannot run parts of a batch
        if not _adds_up(whole, parts):
            return False
    return tested


def parts_add_up(evaluate: Evaluate, batches: Iterable[Any], whole: Evaluate | None = None) -> bool:
    """Whether every batch, as it stands, gives the outputs and the loss of its examples in parts: a few examples do not show
    what a rare one does to the others, or they to it, nor what the first does to all.

    Two ways to take a batch apart, in the rows and in the columns of a square: any two examples are in different parts of
    one of them. The square is filled at random, so that no rule by which examples meet goes along with it. Three passes over
    the data without derivatives; two where `whole` knows what a batch gives.
    """
    return all(_adds_up_in_parts(evaluate, index, batch, whole) for index, batch in enumerate(batches))


def _adds_up_in_parts(evaluate: Evaluate, index: int, batch: Any, whole: Evaluate | None) -> bool:
    size = examples_in(batch) or 0
    if size < 2:
        return True
    order = torch.randperm(size, generator=Rng(0).child("parts", index).torch(), device="cpu")
    side = math.isqrt(size - 1) + 1
    try:
        terms = (whole or evaluate)(batch)
        rows, columns = torch.split(order, side), [order[start::side] for start in range(side)]
        return all(_consists_of(terms, parts, batch, evaluate) for parts in (rows, columns) if len(parts) > 1)
    except Exception:
        return False


def _consists_of(terms: OutputLoss | ScalarLoss, places: Sequence[Tensor], batch: Any, evaluate: Evaluate) -> bool:
    """Whether these terms of a batch are those of its examples at these places, part by part."""
    order = torch.cat(list(places))
    parts = [take(batch, part) for part in places]
    aligned = _Sum(terms).in_order(order)
    if aligned is not None and _is_made_of(aligned, parts, evaluate):
        return True
    # Rows may be ordered otherwise than examples: those of examples in the order of the parts are theirs.
    shuffled = _Sum(evaluate(take(batch, order)))
    same = _adds_up(_Sum(terms).without_outputs(), [shuffled.without_outputs()])
    return same and _is_made_of(shuffled, parts, evaluate)


def _is_made_of(whole: _Sum, pieces: Iterable[Any], evaluate: Evaluate) -> bool:
    parts = []
    for piece in pieces:
        parts.append(_Sum(evaluate(piece)))
        if not parts[-1].follows(whole):
            return False
    return _adds_up(whole, parts)


class _Sum:
    """What one evaluation gives: the sum over its examples, their count and, where they come apart, the outputs."""

    def __init__(self, terms: OutputLoss | ScalarLoss) -> None:
        self.value, self.count = value_of(terms), terms.count
        self.outputs = None if isinstance(terms, ScalarLoss) else terms.f.detach()
        self.dtype = terms.total.dtype if isinstance(terms, ScalarLoss) else terms.f.dtype

    def without_outputs(self) -> _Sum:
        """Its numbers alone."""
        found = copy.copy(self)
        found.outputs = None
        return found

    def in_order(self, order: Tensor) -> _Sum | None:
        """The same with the examples in another order; None where outputs are not a fixed number of rows for each."""
        if self.outputs is not None:
            if len(self.outputs) == 0 or len(self.outputs) % len(order):
                return None
            by_example = self.outputs.reshape(len(order), -1, *self.outputs.shape[1:])
            self.outputs = by_example[order.to(self.outputs.device)].flatten(0, 1)
        return self

    def follows(self, whole: _Sum) -> bool:
        """Whether these outputs are the next of the whole's; both then let go of them, as they may be large."""
        if whole.outputs is None or self.outputs is None:
            return True
        rows = len(self.outputs)
        same = same_numbers(self.outputs, whole.outputs[:rows])
        self.outputs, whole.outputs = self.outputs[:0], whole.outputs[rows:]
        return same


def _uneven(size: int) -> list[tuple[int, int]]:
    first = 1
    second = min(size, 1 + max(1, (size - 1) * 3 // 7))
    return [(a, b) for a, b in ((0, first), (first, second), (second, size)) if b > a]


def _adds_up(whole: _Sum, parts: Sequence[_Sum]) -> bool:
    digits = rounding_of(whole.dtype)
    counted = abs(sum(part.count for part in parts) - whole.count) <= 1e-6 * abs(whole.count)
    size = sum(abs(part.value) for part in parts) + abs(whole.value)
    summed = abs(sum(part.value for part in parts) - whole.value) <= digits * size
    if whole.outputs is not None:
        outputs = [part.outputs for part in parts if part.outputs is not None]
        return counted and summed and same_numbers(torch.cat(outputs), whole.outputs)
    if counted and not summed and whole.count > 0:
        mean = sum(part.count * part.value for part in parts) / whole.count
        if abs(mean - whole.value) <= digits * size:
            refuse(
                "loss(model, batch) must return the sum over the batch and what a mean divides by",
                "a mean in the place of the sum: for a batch it is the mean of its parts",
                "Multiply it by the count, or return reduction='sum'.",
            )
    return counted and summed


def same_numbers(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding, measured by the largest entry."""
    if a.shape != b.shape:
        return False
    if not a.numel():
        return True
    size = float(b.detach().abs().max())
    return float((a.detach() - b.detach()).abs().max()) <= rounding_of(b.dtype) * size
