"""Examples that the loss counts: a proof on others, labelled as ignored or of no weight, would hold of anything."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...rng import Rng
from ..data import examples_in, take
from ..gradient_mode import differentiable
from ..losses.base import OutputLoss
from ..losses.softmax import SoftmaxLoss
from ..models.evaluation import gradient_of
from ..processes import same_everywhere
from .independence import examples_to_look_at, scattered_examples, together
from .probing import is_large

if TYPE_CHECKING:
    from ..problem import Problem

_MANY = 1 << 22  # logits of a large vocabulary fill memory, and their derivatives several times as much
_TRIES = 200  # evaluations of parts of batches: where examples see each other, one alone may count nowhere


@differentiable()
def few_examples(problem: Problem) -> list[Any] | None:
    """A few examples, scattered at random over the data of all processes; None where a batch has none along its first axis."""
    tensors = [*problem._fixed.values(), *problem.parameters.values()]
    count = examples_to_look_at(next(iter(problem.batches), None), tensors)
    found = scattered_examples(problem.batches, count, Rng(0).child("probe"))
    counted = False
    if found and not (is_large(problem) and problem.distributed):  # where processes share the work, none may do more
        found, counted = _that_count(problem, found, count)
    if not problem.distributed:
        return found
    agreed: list[Any] | None = same_everywhere(found if counted else None) or same_everywhere(found)
    return agreed


def _that_count(problem: Problem, drawn: list[Any], count: int) -> tuple[list[Any], bool]:
    """The examples that were drawn, if the loss depends on each of them; else up to `count` of all data on which it does,
    and one on which it does not. And whether there are any.
    """
    try:
        if all(_whole_counts(problem, group) for group in drawn):
            return drawn, True
        found = list(_Search(problem).examples(count))
        rest = next((one for one in _singles(drawn) if not _counts(problem, one)), None)
    except Exception:  # a model or a loss that cannot run parts of a batch; what is wrong with it shows elsewhere
        return drawn, True
    return (together([*found, *([] if rest is None else [rest])]), True) if found else (drawn, False)


def _whole_counts(problem: Problem, group: Any) -> bool:
    """Whether every example of a few counts."""
    terms = problem.evaluate(group, problem.parameters)
    if isinstance(terms, OutputLoss) and len(terms.f) and len(terms.f) % (examples_in(group) or 1) == 0:
        return bool(_depends(terms).all())
    return all(_counts(problem, one) for one in _singles([group]))


def _counts(problem: Problem, batch: Any) -> bool:
    """Whether the loss of these examples depends on the network, as far as first derivatives and curvature tell."""
    terms = problem.evaluate(batch, problem.parameters)
    if isinstance(terms, OutputLoss):
        return bool(_depends(terms).any())
    leaves = problem.leaves()
    terms = problem.evaluate(batch, leaves)
    return any(bool(g.any()) for g in gradient_of(terms, leaves, False, True) if g is not None)


def _depends(terms: OutputLoss) -> Tensor:
    """By rows."""
    if isinstance(terms, SoftmaxLoss) and terms.f.numel() > _MANY:
        return terms.weight != 0
    slope = terms.output_gradient()
    along = torch.randn(slope.shape, generator=Rng(0).child("counting").torch(), dtype=torch.float64, device="cpu")
    return ((slope != 0) | (terms.curvature(along.to(slope)) != 0)).any(-1)


def _singles(groups: list[Any]) -> Iterator[Any]:
    for group in groups:
        for place in range(examples_in(group) or 0):
            yield take(group, torch.tensor([place], device="cpu"))


class _Search:
    """Examples that count, a few of every batch that has some."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.tries = problem, 0

    def examples(self, count: int) -> Iterator[Any]:
        held = self.problem.batches.held
        share = ceil(count / max(1, sum(1 for _ in self.problem.batches))) if held else count
        for index, batch in enumerate(self.problem.batches):
            size = examples_in(batch) or 0
            order = torch.randperm(size, generator=Rng(0).child("counting", index).torch(), device="cpu")
            for place in self._by_halves(batch, order, min(share, count)):
                count -= 1
                yield take(batch, place)
            if count <= 0 or self.tries > _TRIES:
                return

    def _by_halves(self, batch: Any, places: Tensor, count: int) -> Iterator[Tensor]:
        self.tries += len(places) < (examples_in(batch) or 0)  # whole batches are looked at until one has some
        if not len(places) or count <= 0 or self.tries > _TRIES or not _counts(self.problem, take(batch, places)):
            return
        if len(places) == 1:
            yield places
            return
        for half in torch.tensor_split(places, 2):
            for place in self._by_halves(batch, half, count):
                count -= 1
                yield place
