"""The kernel polynomial method: Chebyshev moments with Jackson damping."""

from __future__ import annotations

import math

import numpy as np

from ...measure import Array, AtomicMeasure
from ...operators import Counted
from ...rng import Rng
from ..krylov.lanczos import Lanczos
from ..validation import multiply
from .quadrature import levy, sampling_error, spread

BOUND_STEPS = 12


def kernel_polynomial(
    op: Counted, probes: int, steps: int, tol: float | None, rng: Rng
) -> tuple[list[AtomicMeasure], tuple[int, ...], tuple[float, float]]:
    """One measure per probe, from 2 · steps moments each; the lengths of the runs and the estimated (W₁, sup) errors."""
    low, high = _bounds(op, rng.child("bounds"))
    centre, half = (low + high) / 2, max((high - low) / 2, 1e-300)
    parts: list[AtomicMeasure] = []
    errors = (math.inf, math.inf)
    for index in range(probes):
        moments = _moments(op, steps, centre, half, rng.child("probe", index))
        parts.append(_damped(moments, centre, half))
        average = AtomicMeasure.mixture(parts)
        coarse = _damped(moments[: steps + 1], centre, half)
        sampling = np.array(sampling_error(average, op.shape[0])) / math.sqrt(len(parts))
        size = spread(average)
        kernel = np.array([coarse.wasserstein(parts[-1]), levy(coarse, parts[-1], 0.01 * size)])
        w1, sup = np.hypot(sampling, kernel)
        errors = float(w1), float(sup)
        if tol is not None and errors[0] <= tol * size and errors[1] <= tol:
            break
    return parts, (steps,) * len(parts), errors


def _bounds(op: Counted, rng: Rng) -> tuple[float, float]:
    """An interval that holds the spectrum: Ritz values widened by the residual of the outermost ones."""
    start = op.layout.draw(rng, 1, "normal", op.dtype, op.device)
    lanczos = Lanczos(op, start, start[:, :0])
    while lanczos.steps < BOUND_STEPS and not lanczos.ended:
        lanczos.step()
    alpha, beta = np.array(lanczos.alpha), np.array(lanczos.beta)
    nodes = np.linalg.eigvalsh(np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1))
    # ‖H‖ ≤ max θ + β is Paige's bound for the whole chain; 1 % more for what a single start may not have seen.
    margin = beta[-1] + 0.01 * (nodes[-1] - nodes[0]) + 1e-12 * np.abs(nodes).max()
    return float(nodes[0] - margin), float(nodes[-1] + margin)


def _moments(op: Counted, steps: int, centre: float, half: float, rng: Rng) -> Array:
    """μ_j = vᵀT_j(H̃)v for j ≤ 2 · steps: each product gives two, by 2 T_i T_j = T_{i+j} + T_{i−j}."""
    layout = op.layout
    v = layout.draw(rng, 1, "normal", op.dtype, op.device)
    v = v / float(layout.norms(v))
    previous, current = v, (multiply(op, v) - centre * v) / half
    mu = np.zeros(2 * steps + 1)
    mu[0], mu[1] = 1.0, float(layout.inner(v, current))
    mu[2] = 2 * float(layout.inner(current, current)) - 1.0
    for j in range(2, steps + 1):
        following = 2 * (multiply(op, current) - centre * current) / half - previous
        previous, current = current, following
        mu[2 * j - 1] = 2 * float(layout.inner(previous, current)) - mu[1]
        mu[2 * j] = 2 * float(layout.inner(current, current)) - 1.0
    return mu


def _damped(moments: Array, centre: float, half: float) -> AtomicMeasure:
    """Jackson's kernel makes the truncated series positive; its mass sits on 4 Chebyshev points per moment."""
    order = moments.size
    j = np.arange(order)
    q = math.pi / (order + 1)
    jackson = ((order - j + 1) * np.cos(q * j) + np.sin(q * j) / math.tan(q)) / (order + 1)
    angles = math.pi * (np.arange(4 * order) + 0.5) / (4 * order)
    series = 2 * jackson * moments
    series[0] /= 2
    weights = np.maximum(np.cos(np.outer(angles, j)) @ series, 0.0)
    return AtomicMeasure.of(centre + half * np.cos(angles), weights)
