"""Functions of a pair of logit vectors, tabulated once on a Chebyshev grid and read off at many points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...measure import Array
from .logit_pairs import LogitMarginal, LogitPair

Coordinates = tuple[Array, Array, Array]

_SCALES = 12
_CORRELATIONS = 6
_CHUNK = 4096


def interpolate_pairs(
    classes: int, measure: Callable[[LogitPair], Array], mirror: NDArray[np.intp], at: Coordinates
) -> Array:
    """`measure(pair)` (k numbers) at every point (τ, τ', c): an array (n, k), by tensor interpolation.

    `mirror` tells which number takes the place of each when the two examples change places, so only half the grid is
    computed. What is interpolated is e^(-ρ) times the measure, ρ = τ τ' c, which has a moderate range.
    """
    first, second, correlation = at
    top = float(max(first.max(), second.max()))
    scales, correlations = _nodes(_SCALES, top), _nodes(_CORRELATIONS, 1.0)
    marginals = [LogitMarginal(classes, scale) for scale in scales]
    table = np.empty((_SCALES, _SCALES, _CORRELATIONS, mirror.size))
    for i in range(_SCALES):
        for j in range(i + 1):
            for k, c in enumerate(correlations):
                damping = np.exp(-scales[i] * scales[j] * c)
                table[i, j, k] = damping * measure(LogitPair(classes, marginals[i], marginals[j], float(c)))
                table[j, i, k] = table[i, j, k][mirror]
    flat = table.reshape(-1, mirror.size)
    out = np.empty((first.size, mirror.size))
    for start in range(0, first.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        rows = _lagrange(scales, first[part])[:, :, None] * _lagrange(scales, second[part])[:, None, :]
        rows = rows[..., None] * _lagrange(correlations, correlation[part])[:, None, None, :]
        out[part] = rows.reshape(rows.shape[0], -1) @ flat
    return np.asarray(out * np.exp(first * second * correlation)[:, None])


def _nodes(count: int, top: float) -> Array:
    """Chebyshev points of the second kind on [0, top]."""
    return np.asarray(0.5 * top * (1 - np.cos(np.pi * np.arange(count) / (count - 1))))


def _lagrange(nodes: Array, points: Array) -> Array:
    """The Lagrange polynomials of Chebyshev nodes at the points, in barycentric form: (n, nodes)."""
    signs = (-1.0) ** np.arange(nodes.size)
    signs[[0, -1]] *= 0.5
    gap = points[:, None] - nodes
    hit = gap == 0
    terms = signs / np.where(hit, 1.0, gap)
    values = terms / terms.sum(1, keepdims=True)
    return np.asarray(np.where(hit.any(1)[:, None], hit.astype(np.float64), values))
