"""Variances in closed form from the curvature: s = 1/(1/λ + κ m h)."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from ..bounds import Grid
from .gaussian import Posterior

_ROUNDS = 8
_STRENGTH = 3.0
_SMALLEST = 1e-6


def scales_from_curvature(posterior: Posterior, examples: int, grid: Grid) -> None:
    """s = 1/(1/λ + κ m h), h the eigenvalues of E[M] ⊗ E[x xᵀ]: where κ m/2 Σ h s + KL is smallest.

    κ = (∂p/∂e)/(∂p/∂B)/log 2 for p = kl⁻¹(e, B) is 2 to 4 over the range of useful bounds, so it is not searched for.
    λ = mean(s + (w - w₀)²) by iteration. Weights keep the Kronecker form while they are optimised. Parameters without
    an eigenbasis start at s = λ. Costs no pass over data.
    """
    posterior.log_curvature = {}
    posterior.log_prior = torch.full_like(posterior.log_prior.detach(), 0.5 * log(grid.largest))
    for _ in range(_ROUNDS):
        for name, mean in posterior.mean.items():
            wide = float((-2 * posterior.log_prior[posterior.groups[name]]).exp())
            curvature = posterior.bases[name].curvature
            h = torch.zeros_like(mean) if curvature is None else curvature
            posterior.log_scale[name] = -0.5 * (wide + _STRENGTH * examples * h).log()
        posterior.divergence(refit=grid)
    for name, basis in posterior.bases.items():
        if basis.row_values is not None and basis.column_values is not None:
            log_variance = 2 * float(posterior.log_prior[posterior.groups[name]])
            row = _log(basis.row_values)[:, None] + log(_STRENGTH * examples) + log_variance
            posterior.log_curvature[name] = row, _log(basis.column_values)[None, :]


def _log(values: Tensor) -> Tensor:
    return values.clamp_min(_SMALLEST * float(values.max())).log()
