"""From a tridiagonal matrix to a measure: Gauss quadrature and its smooth completion."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigh_tridiagonal

from ...measure import Array, AtomicMeasure

FAMILY = 9


def gauss(alpha: Array, beta: Array) -> AtomicMeasure:
    """Σ_i y²_{1i} δ(θ_i): exact for polynomials of degree 2m − 1; `beta` has m − 1 entries."""
    if alpha.size == 1:
        return AtomicMeasure.of(alpha)
    nodes, y = eigh_tridiagonal(alpha, beta)
    return AtomicMeasure.of(nodes, y[0] ** 2)


def rules(alpha: Array, beta: Array) -> tuple[Array, Array]:
    """Nodes and weights `(FAMILY, m + 1)` of rules that extend T by one entry each; all are exact to degree 2m."""
    centre = float(np.mean(alpha[-5:]))
    nodes, weights = np.empty((2, FAMILY, alpha.size + 1))
    for i in range(FAMILY):
        last = centre + beta[-1] * math.tan(math.pi * ((i + 0.5) / FAMILY - 0.5))
        nodes[i], y = eigh_tridiagonal(np.append(alpha, last), beta, check_finite=False)
        weights[i] = y[0] ** 2
    return nodes, weights


def averaged_rules(alpha: Array, beta: Array) -> AtomicMeasure:
    """The average of m + 1 point rules whose unknown last entry is Cauchy distributed; `beta` has m entries.

    Every rule is exact to degree 2m; together they fill the gaps between Gauss nodes as a continuous spectrum would,
    while converged eigenvalues, which do not feel the last entry, stay sharp. This is the square-root terminator of the
    recursion method (Haydock), kept as atoms. See docs/theory/algorithms.md.
    """
    if beta[-1] == 0.0:
        return gauss(alpha, beta[:-1])
    theta, y = eigh_tridiagonal(alpha, beta[:-1]) if alpha.size > 1 else (alpha, np.ones((1, 1)))
    # An eigenvalue lies within |β y_m| of each Ritz value. Rules put atoms of tiny weight beyond that: move them back.
    reach = beta[-1] * np.abs(y[-1])
    nodes, weights = rules(alpha, beta)
    return AtomicMeasure.of(np.clip(nodes, theta[0] - reach[0], theta[-1] + reach[-1]), weights)


def levy(first: AtomicMeasure, second: AtomicMeasure, slack: float) -> float:
    """sup_x of F(x − slack) − G(x) and G(x − slack) − F(x): the Kolmogorov distance that forgives shifts up to `slack`."""
    # F jumps at its own atoms only, so each difference is largest where a jump has just been shifted by `slack`.
    ahead = first.cdf(first.nodes) - second.cdf(first.nodes + slack)
    behind = second.cdf(second.nodes) - first.cdf(second.nodes + slack)
    return float(max(0.0, ahead.max(), behind.max()))


def spread(measure: AtomicMeasure) -> float:
    """E|λ − median|: the size that a Wasserstein distance is compared with."""
    return float(measure.weights @ np.abs(measure.nodes - measure.quantile(0.5)))


def sampling_error(measure: AtomicMeasure, size: int) -> tuple[float, float]:
    """Expected (W₁, Kolmogorov) distance of one random probe's measure from the spectrum of a `size` × `size` matrix.

    For a uniformly random unit vector the weight below x is Beta(nF/2, n(1 − F)/2), of variance 2F(1 − F)/(n + 2).
    """
    f = measure.cdf(measure.nodes[:-1])
    deviation = np.sqrt(2 * f * (1 - f) / (size + 2))
    # E|N(0,1)| = √(2/π); 0.87 is the mean of the supremum of a Brownian bridge.
    return float(math.sqrt(2 / math.pi) * deviation @ np.diff(measure.nodes)), 0.87 * math.sqrt(2 / (size + 2))
