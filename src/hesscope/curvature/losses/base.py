"""What a loss looks like to the curvature: rows of outputs, each with a value, a slope and a curvature."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from .row_draws import RowDraws


class OutputLoss(ABC):
    """ℓ = Σ_r ℓ_r(f_r) over rows f of shape `(R, C)`, with derivatives in f that keep their digits.

    `f` is connected to the parameters; everything else is a number. A row is what the loss counts: an example or a
    valid token, times its weight.
    """

    f: Tensor
    count: float  # what a mean loss divides the sum by
    likelihood = False  # whether -ℓ_r is a log-likelihood whose curvature in f does not depend on the row's target

    @abstractmethod
    def total(self) -> Tensor:
        """Σ_r ℓ_r as a function of f in plain operations: differentiable any number of times, in any mode."""

    @property
    def value(self) -> Tensor:
        """Σ_r ℓ_r, detached, in float64."""
        with torch.no_grad():
            return self.total().double()

    @abstractmethod
    def output_gradient(self) -> Tensor:
        """∂ℓ/∂f of shape `(R, C)`, detached."""

    @abstractmethod
    def curvature(self, u: Tensor) -> Tensor:
        """∂²ℓ/∂f² · u, row by row, for u of shape `(R, C)`."""

    @abstractmethod
    def columns(self) -> int:
        """How many columns the factor S has in ∂²ℓ/∂f² = S Sᵀ; 0 where there is no such factor."""

    @abstractmethod
    def column(self, index: int) -> Tensor:
        """Column `index` of S for every row: shape `(R, C)`."""

    @abstractmethod
    def random_column(self, generator: torch.Generator) -> Tensor:
        """S ε with independent random signs ε in every row: shape `(R, C)`, E[(Sε)(Sε)ᵀ] = S Sᵀ."""

    @abstractmethod
    def sampled_output_gradient(self, draws: RowDraws) -> Tensor:
        """∂ℓ/∂f at targets drawn from the model, scaled so that E[s sᵀ] = ∂²ℓ/∂f²; of a `likelihood` only."""

    def example_output_gradient(self) -> Tensor:
        """The slope with each row's weight split evenly: s sᵀ is the row's share of the empirical Fisher matrix."""
        return self.output_gradient()

    def held(self) -> tuple[Tensor, ...]:
        """The tensors that `curvature` needs."""
        return ()

    def differentiable_output_gradient(self) -> Tensor:
        """∂ℓ/∂f as a differentiable function of f whose derivative is `curvature`."""
        slope: Tensor = _OutputGradient.apply(self.f, self)  # type: ignore[no-untyped-call]
        return slope


class _OutputGradient(torch.autograd.Function):
    """f ↦ ∂ℓ/∂f with derivative ∂²ℓ/∂f²: the loss itself never enters the graph, so its digits are ours to keep."""

    @staticmethod
    def forward(f: Tensor, rows: OutputLoss) -> Tensor:
        return rows.output_gradient()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.rows = inputs[1]
        ctx.save_for_backward(*ctx.rows.held())  # so that what the rows hold counts as saved memory

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return ctx.rows.curvature(grads[0]), None


def random_signs(shape: torch.Size | tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """±1 with equal odds, drawn on the CPU so that every device sees the same signs."""
    return torch.randint(0, 2, tuple(shape), generator=generator, device="cpu").mul_(2).sub_(1).to(like)
