"""Integrals of densities with square-root edges and inner peaks, independent of the laws' own cdfs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hesscope.rmt import GeneralisedMarchenkoPastur

# Densities solve a fixed point to a relative error far below this; halving a panel further would only chase rounding.
_NOISE = 1e-8
_MOST_PANELS = 512  # a smooth density with two edges takes about a hundred


def total_mass(law: GeneralisedMarchenkoPastur) -> float:
    """The integral of the density by adaptive Gauss panels in the angle of each bulk, plus the atom at zero.

    A panel is halved until both halves agree with it to 1e-10, or to the noise of the density; at most 512 panels.
    """
    total = law.mass_at_zero
    for left, right in law.support:

        def integrand(angle: np.ndarray, left: float = left, right: float = right) -> np.ndarray:
            half = 0.5 * (right - left)
            return law.density(0.5 * (left + right) - half * np.cos(angle)) * half * np.sin(angle)

        total += _integral(integrand, np.linspace(0.0, np.pi, 9))
    return float(total)


def _integral(f: Callable[[np.ndarray], np.ndarray], points: np.ndarray) -> float:
    a, b = points[:-1], points[1:]
    whole = _panels(f, a, b)
    total, work = 0.0, 0
    while a.size:
        middle = 0.5 * (a + b)
        first, second = _panels(f, a, middle), _panels(f, middle, b)
        work += a.size
        miss = np.abs(whole - first - second)
        split = (miss > np.maximum(1e-10, _NOISE * np.abs(whole))) & (work < _MOST_PANELS)
        total += (first + second)[~split].sum()
        a, b = np.concatenate([a[split], middle[split]]), np.concatenate([middle[split], b[split]])
        whole = np.concatenate([first[split], second[split]])
    return float(total)


def _panels(f: Callable[[np.ndarray], np.ndarray], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    nodes, weights = np.polynomial.legendre.leggauss(24)
    points = 0.5 * (a + b)[:, None] + 0.5 * (b - a)[:, None] * nodes
    return np.asarray((f(points.reshape(-1)).reshape(points.shape) @ weights) * 0.5 * (b - a))
