"""What is minimised: a training error one can differentiate, and the bound as a function of it."""

from __future__ import annotations

from math import log

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kl import binary_kl_inverse_slopes

_MEMORY = 0.98


def scaled_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy / log 2, an upper bound on the 0-1 error (Dziugaite & Roy's surrogate)."""
    return F.cross_entropy(logits, labels) / log(2)


def relaxed_bound(error: Tensor, complexity: Tensor) -> Tensor:
    """e + √(B/2), the papers' objective (278)."""
    return error + (complexity / 2).sqrt()


def expected_error(
    mean: Tensor, variance: Tensor, turn: Tensor | None, labels: Tensor, generator: torch.Generator
) -> Tensor:
    """P[argmax z ≠ y], averaged over examples, for z = U a with a ~ N(mean, diag variance): the 0-1 error itself.

    The noise along d = e_y - (mean of the other classes) is integrated out, the rest is drawn once: unbiased, and
    differentiable because the integral is. For two classes nothing is left to draw.
    """
    classes = mean.shape[1]
    eye = torch.eye(classes, dtype=mean.dtype, device=mean.device)
    turn = eye if turn is None else turn
    contrast = (eye * classes - 1) / (classes - 1)
    along = contrast[labels] @ turn  # dᵀU
    spread = (variance * along.square()).sum(1, keepdim=True) + 1e-20  # dᵀCd
    noise = (
        torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device="cpu").to(mean.device)
        * (variance + 1e-20).sqrt()
    )
    response = variance * along / spread  # Uᵀ C d / dᵀCd
    rest = (mean + noise - response * (noise * along).sum(1, keepdim=True)) @ turn.T
    slope = response @ turn.T
    own = labels[:, None]
    margins = rest.gather(1, own) - rest
    slopes = slope.gather(1, own) - slope
    # An error where margin + slope · g < 0 for some class, g ~ N(0, dᵀCd); slopes below 0 are rare and held at a floor.
    limits = (-margins / slopes.clamp_min(1e-3)).scatter(1, own, -torch.inf)
    found: Tensor = torch.special.ndtr(limits.amax(1) / spread.squeeze(1).sqrt()).mean()
    return found


class InvertedBound:
    """kl⁻¹(e, B) linearised at a running mean of e: its gradient, without the bias of inverting a noisy estimate."""

    def __init__(self, error: float | None = None) -> None:
        self.error = error

    def __call__(self, error: Tensor, complexity: Tensor) -> Tensor:
        now = float(error.detach())
        self.error = now if self.error is None else _MEMORY * self.error + (1 - _MEMORY) * now
        _, by_error, by_complexity = binary_kl_inverse_slopes(
            min(max(self.error, 1e-5), 0.99), float(complexity.detach())
        )
        return by_error * error.double().cpu() + by_complexity * complexity
