"""A run with parts of it replaced: its loss by the quadratic model, its step by one whose preconditioner is held."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ...curvature import Hessian, Problem
from ...step_stability import OptimizerState
from ._runs import FullBatchRun


class LossModel(Protocol):
    """A loss at the checkpoint plus d, and its gradient there."""

    here: float

    def at(self, d: Tensor) -> tuple[float, Tensor]: ...


class RealLoss:
    """That of the network."""

    def __init__(self, run: FullBatchRun) -> None:
        self._copy = run.copy()
        self._start = parameters_to_vector(self._copy.model.parameters()).detach()
        self.here = float(run.loss().detach())

    def at(self, d: Tensor) -> tuple[float, Tensor]:
        vector_to_parameters(self._start + d, self._copy.model.parameters())
        value = self._copy.loss()
        pieces = torch.autograd.grad(value, list(self._copy.model.parameters()))
        return float(value.detach()), parameters_to_vector(pieces)


class QuadraticLoss:
    """L + gᵀd + dᵀHd/2 with the exact gradient and Hessian of the checkpoint."""

    def __init__(self, problem: Problem) -> None:
        self._hessian = Hessian(problem)
        self._gradient = problem.gradient()
        self.here = problem.loss_value()

    def at(self, d: Tensor) -> tuple[float, Tensor]:
        bent = self._hessian @ d if bool((d != 0).any()) else torch.zeros_like(d)
        change = d.double() @ (self._gradient.double() + bent.double() / 2)
        return self.here + float(change), self._gradient + bent


class TorchStep:
    """The real optimiser of the run at another rate, on a copy; its gradients are handed to it."""

    def __init__(self, run: FullBatchRun, rate: float) -> None:
        self._copy = run.copy()
        self._start = parameters_to_vector(self._copy.model.parameters()).detach()
        self.origin = torch.zeros_like(self._start)
        for group in self._copy.optimizer.param_groups:
            group["lr"] = rate

    def after(self, gradient: Tensor) -> Tensor:
        """Where a step from this gradient leads, from the checkpoint."""
        start = 0
        for parameter in self._copy.model.parameters():
            parameter.grad = gradient[start : start + parameter.numel()].view_as(parameter).clone()
            start += parameter.numel()
        self._copy.optimizer.step()
        return parameters_to_vector(self._copy.model.parameters()).detach() - self._start


class FrozenStep:
    """m ← βm + γg; θ ← θ − rate · S (a m + b g) with S, a and b of the checkpoint; runs here have no decay."""

    def __init__(self, run: FullBatchRun, state: OptimizerState, rate: float) -> None:
        self._rule, self._rate = state.reference, rate
        self._scale = state.inverse_preconditioner.float()
        moments = [
            next((s[key] for key in ("momentum_buffer", "exp_avg") if s.get(key) is not None), torch.zeros_like(p))
            for p in run.model.parameters()
            for s in [run.optimizer.state[p]]
        ]
        self._moment = parameters_to_vector(moments).detach()
        self.origin = self._at = torch.zeros_like(self._scale)

    def after(self, gradient: Tensor) -> Tensor:
        """Where a step from this gradient leads, from the checkpoint."""
        rule = self._rule
        self._moment = rule.momentum * self._moment + rule.intake * gradient
        along = rule.from_buffer * self._moment + rule.from_gradient * gradient
        self._at = self._at - self._rate * self._scale * along
        return self._at


def losses_of(loss: LossModel, step: TorchStep | FrozenStep, steps: int) -> Iterator[float]:
    """The losses after each of so many steps, one by one, until one is not finite."""
    _, gradient = loss.at(step.origin)
    for _ in range(steps):
        value, gradient = loss.at(step.after(gradient))
        yield value
        if not math.isfinite(value):
            return
