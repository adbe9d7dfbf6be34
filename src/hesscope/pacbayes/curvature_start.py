"""Variances in closed form from the curvature: s = 1/(1/λ + κ h), with one number κ to choose."""

from __future__ import annotations

from typing import Any

import torch

from ..rng import Rng
from .bound import Grid
from .objective import relaxed_bound, scaled_cross_entropy
from .posterior import Posterior
from .stochastic import StochasticNetwork

_KAPPAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
_ROUNDS = 8


def scales_from_curvature(
    posterior: Posterior, network: StochasticNetwork, batch: Any, examples: int, grid: Grid, rng: Rng
) -> float:
    """s = 1/(1/λ + κ m h), h the eigenvalues of E[M] ⊗ E[x xᵀ]: minimises κ m/2 Σ h s + KL. Returns κ.

    With λ = mean(s + (w - w₀)²), found by iteration. κ is the one with the smallest relaxed bound (278) on `batch`; each
    costs a forward pass. Its cross-entropy keeps the noise low at first: the 0-1 error would choose noise that the
    trained means do not survive.
    """
    scores = {}
    for kappa in _KAPPAS:
        _place(posterior, kappa * examples, grid)
        with torch.no_grad():
            logits, labels = network.logits(batch, "example", rng.torch())
        complexity = posterior.divergence().detach() / (examples - 1)
        scores[kappa] = float(relaxed_bound(scaled_cross_entropy(logits, labels), complexity))
    best = min(scores, key=lambda kappa: scores[kappa])
    _place(posterior, best * examples, grid)
    return best


def _place(posterior: Posterior, strength: float, grid: Grid) -> None:
    posterior.log_prior = torch.full_like(posterior.log_prior.detach(), 0.5 * float(torch.tensor(grid.largest).log()))
    for _ in range(_ROUNDS):
        for name, mean in posterior.mean.items():
            wide = float((-2 * posterior.log_prior[posterior.groups[name]]).exp())
            curvature = posterior.bases[name].curvature
            h = torch.zeros_like(mean) if curvature is None else curvature
            posterior.log_scale[name] = -0.5 * (wide + strength * h).log()
        posterior.divergence(refit=grid)
