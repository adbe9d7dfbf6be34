"""Has a Krylov run missed a copy of an eigenvalue? A random probe answers, with a bound on the chance of a wrong answer.

A Krylov space grown from one vector holds one vector of each eigenspace, whatever its dimension. A random direction
outside that space leans on a missed eigenvector by about 1/√n, and a few more steps make it visible.
"""

from __future__ import annotations

import math

import numpy as np

from ...measure import Array

# P(|wᵀu| < LUCK / √n) ≈ 0.8 · LUCK for a random unit vector w: the chance that a probe overlooks one missed copy.
LUCK = 0.02


def ruled_out(alpha: Array, beta: Array, threshold: float, size: float) -> bool:
    """Whether no eigenvalue ≥ `threshold` outside the basis can have escaped a chain with these s + s coefficients.

    A measure with the orthonormal polynomials p_0 ... p_s has at most 1 / Σ_j p_j(x)² of its mass at x (Christoffel),
    less and less above the largest Ritz value; a missed eigenvector would have brought at least LUCK² / n.
    """
    matrix = np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1)
    if not np.linalg.eigvalsh(matrix)[-1] < threshold:
        return False
    needed, total, before, now = size / LUCK**2, 1.0, 0.0, 1.0
    for j in range(alpha.size):
        rest = (threshold - alpha[j]) * now - (beta[j - 1] * before if j else 0.0)
        if beta[j] == 0.0 or abs(rest) > beta[j] * math.sqrt(needed):
            return True
        before, now = now, rest / beta[j]
        total += now**2
    return total >= needed


def nothing_missed(alpha: Array, beta: Array, values: Array, which: str, size: int) -> bool:
    """`ruled_out` at the ends that `which` asks for, given the wanted eigenvalues found so far."""
    return all(ruled_out(sign * alpha, beta, edge, size) for sign, edge in _ends(values, which))


def contributes(probe: Array, values: Array, which: str, slack: float) -> bool:
    """Whether the probe's matrix has a Ritz value that lies more than `slack` inside the wanted range."""
    return any(np.linalg.eigvalsh(sign * probe)[-1] > edge + slack for sign, edge in _ends(values, which))


def _ends(values: Array, which: str) -> list[tuple[float, float]]:
    """For every end asked for, the sign that turns it upwards and the last wanted value there."""
    if which == "largest":
        return [(1.0, float(values.min()))]
    if which == "smallest":
        return [(-1.0, float(-values.max()))]
    if which == "magnitude":
        edge = float(np.abs(values).min())
        return [(1.0, edge), (-1.0, edge)]
    half, ordered = values.size // 2, np.sort(values)
    return [(1.0, float(ordered[-half:].min())), (-1.0, float(-ordered[:half].max()))]
