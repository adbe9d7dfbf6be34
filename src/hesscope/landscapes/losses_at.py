"""L(θ + δ) on exactly the problem's data, with its reduction; sums in float64, parameters in float64 where they can be."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..curvature import Problem
from ..curvature.models.evaluation import value_of


class LossAt:
    """The loss as a function of a displacement; counts its passes and tells `on_pass` of each."""

    def __init__(self, problem: Problem, on_pass: Callable[[], None] | None = None) -> None:
        self.problem = in_float64(problem)
        self._on_pass = on_pass
        self.origin = flat_parameters(self.problem)
        self.loss, self.passes = self._mean([value for value, _ in self.problem.batch_values]), 1

    @property
    def resolution(self) -> float:
        """The relative rounding of the parameters."""
        return max(torch.finfo(tensor.dtype).eps for tensor in self.problem.parameters.values())

    def __call__(self, displacement: Tensor) -> float:
        problem = self.problem
        moved = problem.space.unpack(self.origin + displacement)
        own = problem.parameters
        at = {name: new.to(own[name].dtype) for name, new in zip(problem.space.names, moved, strict=True)}
        sums = [value_of(problem.evaluate(batch, at)) for batch in problem.batches]
        self.passes += 1
        if self._on_pass is not None:
            self._on_pass()
        return self._mean(sums)

    def _mean(self, sums: list[float]) -> float:
        """L of the sums of all batches."""
        # fsum refuses infinities, which far from the parameters are as good an answer as any.
        total = math.fsum(sums) if all(map(math.isfinite, sums)) else float(sum(sums))
        return float(self.problem.all_sum(torch.tensor(total, dtype=torch.float64, device="cpu"))) * self.problem.scale


def flat_parameters(problem: Problem) -> Tensor:
    """θ in float64."""
    like = torch.empty(0, dtype=torch.float64, device=problem.device)
    return problem.space.pack([problem.parameters[name] for name in problem.space.names], like)


def in_float64(problem: Problem) -> Problem:
    """The problem in float64 where its model runs and answers in it, so that small changes of the loss keep digits."""
    if problem.dtype == torch.float64 or problem.probe.dtype != torch.float64:
        return problem
    return problem.cast(torch.float64)
