"""The law of ℓ = log Σ_{k <= n} e^(z_k), z standard normal, as a Gauss rule built by doubling n."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...measure import Array

Rule = tuple[Array, Array]

_NODES = 40


@lru_cache(maxsize=64)
def log_sum_rule(count: int) -> Rule:
    """Nodes and weights with Σ w f(ℓ) = E f(ℓ) for smooth f; about log2(n) merges of two 40-point rules.

    A sum of n terms is two independent sums of about n/2: the 1600 pairs of their nodes are an exact product rule,
    which Lanczos shortens to the 40-point Gauss rule of the same measure.
    """
    if count == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        return nodes, weights / weights.sum()
    half, rest = log_sum_rule(count // 2), log_sum_rule(count - count // 2)
    return _gauss_rule(np.logaddexp.outer(half[0], rest[0]).ravel(), np.multiply.outer(half[1], rest[1]).ravel())


def _gauss_rule(points: Array, masses: Array) -> Rule:
    """The shorter Gauss rule of a discrete measure, by Lanczos with full reorthogonalisation."""
    centre = float(masses @ points)
    shifted = points - centre
    basis = np.zeros((_NODES, points.size))
    basis[0] = np.sqrt(masses / masses.sum())
    alpha, beta = np.zeros(_NODES), np.zeros(_NODES - 1)
    for k in range(_NODES):
        direction = shifted * basis[k]
        alpha[k] = basis[k] @ direction
        for _ in range(2):
            direction -= basis[: k + 1].T @ (basis[: k + 1] @ direction)
        if k + 1 < _NODES:
            beta[k] = np.linalg.norm(direction)
            basis[k + 1] = direction / beta[k]
    nodes, vectors = np.linalg.eigh(np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1))
    weights = vectors[0] ** 2
    return nodes + centre, weights / weights.sum()
