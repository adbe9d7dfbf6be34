"""Variances in closed form from the curvature: s = 1/(1/λ + κ h), with one number κ to choose."""

from __future__ import annotations

from typing import Any

import torch

from ..rng import Rng
from .bound import Grid
from .kl import binary_kl_inverse
from .posterior import Posterior
from .stochastic import StochasticNetwork

_KAPPAS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 0.3, 1.0, 3.0)
_ROUNDS = 8


def scales_from_curvature(
    posterior: Posterior, network: StochasticNetwork, batch: Any, examples: int, grid: Grid, rng: Rng
) -> float:
    """s = 1/(1/λ + κ m h), h the eigenvalues of E[M] ⊗ E[x xᵀ]: minimises κ m/2 Σ h s + KL. Returns κ.

    With λ = mean(s + (w - w₀)²), found by iteration. κ is the one with the best estimated bound on `batch`; each costs
    a forward pass. Parameters without an eigenbasis get the mean curvature of zero, hence s = λ, before training.
    """
    scores = {}
    for kappa in _KAPPAS:
        _place(posterior, kappa * examples, grid)
        with torch.no_grad():
            logits, labels = network.logits(batch, "example", rng.torch())
        error = float((logits.argmax(-1) != labels).double().mean())
        complexity = float(posterior.divergence().detach()) / (examples - 1)
        scores[kappa] = float(binary_kl_inverse(error, complexity))
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
        posterior.best_prior(grid)
