"""Losses that treat every output on its own: squared error, Huber, binary cross-entropy, and any other by autograd."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .base import OutputLoss, random_signs
from .row_draws import RowDraws


class ElementwiseLoss(OutputLoss):
    """ℓ = Σ_rc ℓ_rc(f_rc): value, slope `first` and curvature `second` entry by entry."""

    def __init__(
        self,
        f: Tensor,
        count: float,
        total: Callable[[], Tensor],
        first: Tensor,
        second: Tensor,
        *,
        likelihood: bool = True,
        chance: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> None:
        self.f, self.count, self._total = f, count, total
        self.first, self.second, self.likelihood = first, second, likelihood
        self._chance = chance  # P(target = 1) where targets are binary
        self._weight = weight  # how often an entry counts, if not once

    def total(self) -> Tensor:
        return self._total()

    def output_gradient(self) -> Tensor:
        return self.first

    def curvature(self, u: Tensor) -> Tensor:
        return self.second * u

    def held(self) -> tuple[Tensor, ...]:
        return (self.second,)

    def columns(self) -> int:
        return self.f.shape[-1]

    def column(self, index: int) -> Tensor:
        out = torch.zeros_like(self.second)
        out[:, index] = self.second[:, index].sqrt()
        return out

    def random_column(self, generator: torch.Generator) -> Tensor:
        return self.second.sqrt() * random_signs(self.second.shape, generator, self.second)

    def example_output_gradient(self) -> Tensor:
        if self._weight is None:
            return self.first
        return self.first / self._weight.clamp_min(torch.finfo(self.first.dtype).tiny).sqrt()

    def sampled_output_gradient(self, draws: RowDraws) -> Tensor:
        root = self.second.sqrt()
        if self._chance is None:  # a Gaussian likelihood
            return root * draws.normal(*root.shape).to(root)
        p = self._chance
        drawn = draws.uniform(*p.shape).to(p) < p
        # (σ - y)/√(σ(1-σ)) · √second: unit variance under the model, whatever the weights.
        odds = torch.where(drawn, -((1 - p) / p).sqrt(), (p / (1 - p)).sqrt())
        return root * torch.where(root > 0, odds, torch.zeros_like(odds))


def squared_error_loss(f: Tensor, target: Tensor, count: float) -> ElementwiseLoss:
    """ℓ = Σ (f - y)²."""
    gap = f.detach() - target
    return ElementwiseLoss(f, count, lambda: (f - target).square().sum(), 2 * gap, torch.full_like(gap, 2.0))


def huber_loss(f: Tensor, target: Tensor, count: float, delta: float, scale: float) -> ElementwiseLoss:
    """ℓ = scale · Σ h_δ(f - y), h quadratic within δ and linear beyond (SmoothL1 is scale = 1/β, δ = β).

    It curves where the data's residuals are small, which the expectation over targets of its own does not know of.
    """
    gap = f.detach() - target
    inside = gap.abs() < delta

    def total() -> Tensor:
        r = f - target
        return scale * torch.where(inside, 0.5 * r * r, delta * (r * gap.sign() - 0.5 * delta)).sum()

    slope = torch.where(inside, gap, delta * gap.sign())
    return ElementwiseLoss(f, count, total, scale * slope, scale * inside.to(gap), likelihood=False)


def logistic_loss(
    f: Tensor, target: Tensor, count: float, weight: Tensor | None, pos_weight: Tensor | None
) -> ElementwiseLoss:
    """ℓ = Σ w (c y softplus(-f) + (1 - y) softplus(f)), with c the weight of positives."""
    z = f.detach()
    w = torch.ones_like(z) if weight is None else weight
    positive = w * (target if pos_weight is None else pos_weight * target)
    negative = w * (1 - target)
    up, down = torch.sigmoid(z), torch.sigmoid(-z)  # both accurate in both tails

    def total() -> Tensor:
        return (positive * softplus(-f) + negative * softplus(f)).sum()

    slope = negative * up - positive * down
    both = positive + negative
    own = None if weight is None and pos_weight is None else both
    return ElementwiseLoss(f, count, total, slope, both * up * down, chance=up, weight=own)


class AutogradLoss(OutputLoss):
    """Any other differentiable loss of the outputs; its derivatives in f come from double backward."""

    def __init__(self, f: Tensor, count: float, loss: Callable[[Tensor], Tensor]) -> None:
        self.f, self.count, self._loss = f, count, loss

    def total(self) -> Tensor:
        return self._loss(self.f)

    @cached_property
    def _graph(self) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            z = self.f.detach().requires_grad_()
            return z, torch.autograd.grad(self._loss(z), z, create_graph=True)[0]

    def output_gradient(self) -> Tensor:
        return self._graph[1].detach()

    def curvature(self, u: Tensor) -> Tensor:
        z, slope = self._graph
        if not slope.requires_grad:  # a loss that is linear in the outputs
            return torch.zeros_like(u)
        (product,) = torch.autograd.grad(slope, z, u, retain_graph=True, allow_unused=True)
        return torch.zeros_like(u) if product is None else product

    def columns(self) -> int:
        return 0

    def column(self, index: int) -> Tensor:
        raise AssertionError("a loss without a factor has no columns")

    def random_column(self, generator: torch.Generator) -> Tensor:
        raise AssertionError("a loss without a factor has no columns")

    def sampled_output_gradient(self, draws: RowDraws) -> Tensor:
        raise AssertionError("a loss that is no known likelihood has no targets to draw")
