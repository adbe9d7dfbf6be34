"""Has a Krylov run missed a copy of an eigenvalue? A random probe answers, with a bound on the chance of a wrong answer.

A Krylov space grown from one vector holds one vector of each eigenspace, whatever its dimension. A random direction
outside that space leans on a missed eigenvector by about 1/√n, and a few more steps make it visible.
"""

from __future__ import annotations

import math

import numpy as np

from ..measure import Array

# P(|wᵀu| < LUCK / √n) ≈ 0.8 · LUCK for a random unit vector w: the chance that a probe overlooks one missed copy.
LUCK = 0.02


def ruled_out(probe: Array, threshold: float, size: int) -> bool:
    """Whether an eigenvalue ≥ `threshold` outside the basis would have shown in the probe's matrix `(s, s)` by now.

    By the Kaniel-Paige-Saad bound the probe's largest Ritz value θ would have to satisfy
    (μ − θ)/(μ − a) ≤ tan²φ / T²_{s−1}(γ), γ = 1 + 2(μ − θ)/(θ − a), with a the smallest Ritz value and
    tan φ ≤ √n / LUCK; if it does not, there is no such eigenvalue.
    """
    steps = probe.shape[0]
    ritz = np.linalg.eigvalsh(probe)
    low, high = float(ritz[0]), float(ritz[-1])
    if steps < 2 or not high < threshold:
        return False
    spread = max(high - low, 1e-300)
    growth = math.acosh(1 + 2 * (threshold - high) / spread) * (steps - 1)
    log_chebyshev = growth - math.log(2) if growth > 30 else math.log(math.cosh(growth))
    needed = math.log(size) - 2 * math.log(LUCK) + math.log((threshold - low) / (threshold - high))
    return 2 * log_chebyshev >= needed


def nothing_missed(probe: Array, values: Array, which: str, size: int) -> bool:
    """`ruled_out` at the ends that `which` asks for, given the wanted eigenvalues found so far."""
    return all(ruled_out(matrix, edge, size) for matrix, edge in _ends(probe, values, which))


def contributes(probe: Array, values: Array, which: str, slack: float) -> bool:
    """Whether the probe's matrix has a Ritz value that lies more than `slack` inside the wanted range."""
    return any(np.linalg.eigvalsh(matrix)[-1] > edge + slack for matrix, edge in _ends(probe, values, which))


def _ends(probe: Array, values: Array, which: str) -> list[tuple[Array, float]]:
    """For every end asked for, the matrix turned so that this end is its upper one, and the last wanted value there."""
    if which == "largest":
        return [(probe, float(values.min()))]
    if which == "smallest":
        return [(-probe, float(-values.max()))]
    if which == "magnitude":
        edge = float(np.abs(values).min())
        return [(probe, edge), (-probe, edge)]
    half, ordered = values.size // 2, np.sort(values)
    return [(probe, float(ordered[-half:].min())), (-probe, float(-ordered[:half].max()))]
