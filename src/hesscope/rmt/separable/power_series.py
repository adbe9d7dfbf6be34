"""Moments of the separable law: the fixed point as a power series in 1/z."""

from __future__ import annotations

import numpy as np

from .population import Population, Real


def separable_moments(g: Population, t: Population, ratio: float, order: int) -> list[float]:
    """E[λ^k] for k = 0..order. With y = 1/z: δ = -c Σ_j E[t^(j+1)] e^j y^(j+1) and e = Σ_j (-1)^j E[g^(j+1)] δ^j."""
    g_moments = [g.moment(j + 1) for j in range(order + 1)]
    t_moments = [t.moment(j) for j in range(order + 2)]
    delta = np.zeros(order + 1)
    e = np.zeros(order + 1)
    # Each sweep fixes one more coefficient, so order + 1 sweeps are exact.
    for _ in range(order + 1):
        e = _compose([(-1) ** j * moment for j, moment in enumerate(g_moments)], delta)
        shifted = np.concatenate([[0.0], e[:-1]])
        delta = np.concatenate([[0.0], -ratio * _compose(t_moments[1:], shifted)[:-1]])
    shifted = np.concatenate([[0.0], e[:-1]])
    return [float(value) for value in _compose(t_moments[:-1], shifted)]


def _compose(outer: list[float], inner: Real) -> Real:
    """The truncated series Σ_j outer_j inner(y)^j by Horner's rule."""
    total = np.zeros_like(inner)
    for coefficient in reversed(outer):
        total = np.convolve(total, inner)[: inner.size]
        total[0] += coefficient
    return total
