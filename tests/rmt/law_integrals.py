"""Integrals of densities with square-root edges and inner peaks, independent of the laws' own cdfs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hesscope.rmt import GeneralisedMarchenkoPastur


def total_mass(law: GeneralisedMarchenkoPastur) -> float:
    """The integral of the density by adaptive Gauss panels in the angle of each bulk, plus the atom at zero."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    total = law.mass_at_zero
    for left, right in law.support:

        def integrand(angle: np.ndarray, left: float = left, right: float = right) -> np.ndarray:
            half = 0.5 * (right - left)
            return law.density(0.5 * (left + right) - half * np.cos(angle)) * half * np.sin(angle)

        panels = np.linspace(0.0, np.pi, 9)
        left_ends, right_ends = panels[:-1], panels[1:]
        for _ in range(40):
            middle = 0.5 * (left_ends + right_ends)
            whole = _panel(integrand, left_ends, right_ends, nodes, weights)
            halves = _panel(integrand, left_ends, middle, nodes, weights) + _panel(
                integrand, middle, right_ends, nodes, weights
            )
            split = np.abs(whole - halves) > 1e-10
            total += halves[~split].sum()
            left_ends, right_ends = (
                np.concatenate([left_ends[split], middle[split]]),
                np.concatenate([middle[split], right_ends[split]]),
            )
            if left_ends.size == 0:
                break
        else:
            total += _panel(integrand, left_ends, right_ends, nodes, weights).sum()
    return float(total)


def _panel(
    f: Callable[[np.ndarray], np.ndarray], a: np.ndarray, b: np.ndarray, nodes: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    points = 0.5 * (a + b)[:, None] + 0.5 * (b - a)[:, None] * nodes
    return (f(points.reshape(-1)).reshape(points.shape) @ weights) * 0.5 * (b - a)
