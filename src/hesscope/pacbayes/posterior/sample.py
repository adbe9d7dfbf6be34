"""The training sample as one object: any examples of it as a batch, and how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...arguments import is_count
from ...curvature import Problem
from ...curvature.data import Batches, examples_in, map_tensors, tensors_of, to_device
from ...curvature.given_problem import need_problem
from ...curvature.losses.softmax import SoftmaxLoss
from ...errors import refuse


class Sample:
    """All examples of a classification problem, in memory; the bound counts one error per example."""

    def __init__(self, problem: Problem) -> None:
        if problem.distributed:
            refuse("a bound needs all data in one process", "a distributed problem", "Make it without distributed.")
        batches = list(problem.batches)
        if any(examples_in(batch) is None for batch in batches):
            refuse("batches must hold examples along their first axis", "others", "Pass data=(inputs, targets).")
        self.form = batches[0]
        columns = zip(*(tensors_of(to_device(batch, problem.device)) for batch in batches), strict=True)
        self.columns = [torch.cat(column) for column in columns]
        self.size = len(self.columns[0])
        self._check_labels(problem)

    def take(self, which: Tensor | slice) -> Any:
        """The chosen examples as one batch."""
        parts = iter([column[which] for column in self.columns])
        return map_tensors(self.form, lambda _: next(parts))

    def chunks(self, size: int) -> Iterator[Any]:
        """All examples in order, `size` at a time."""
        for start in range(0, self.size, size):
            yield self.take(slice(start, start + size))

    def part(self, problem: Problem, which: Tensor) -> Problem:
        """The problem on the chosen examples alone."""
        batches = [self.take(piece) for piece in torch.split(which, 1024)]
        return problem._copy(batches=Batches(batches, float("inf"), True))

    def _check_labels(self, problem: Problem) -> None:
        few = self.take(slice(0, 2))
        with torch.no_grad():
            rows = problem.evaluate(few, problem.parameters)
        plain = (
            isinstance(rows, SoftmaxLoss)
            and rows.labels is not None
            and len(rows.f) == min(2, self.size)
            and bool((rows.weight == 1).all())
        )
        if not plain:
            refuse(
                "a PAC-Bayes bound here is on the classification error: cross-entropy with one unweighted label per "
                "example",
                "another loss, soft or weighted labels, or several labels per example",
                "Use loss='cross_entropy' with integer labels (two outputs for two classes).",
            )


def split(problem: Problem, count: int) -> tuple[Problem, Problem]:
    """The problem on its first `count` examples, and on the rest.

    For priors that depend on data: train `init` on the first part alone, then bound on the second alone.
    """
    sample = Sample(need_problem(problem))
    if not is_count(count, 1) or not 0 < count < sample.size - 1:
        refuse(f"a split must leave examples on both sides of {sample.size}", f"{count!r}", "Try half of them.")
    order = torch.arange(sample.size, device="cpu")
    return sample.part(problem, order[:count]), sample.part(problem, order[count:])
