"""Uniform points under a Gaussian: the trapezoidal rule, which converges geometrically for analytic integrands."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .population import Real

REACH = 8.8
Values = NDArray[Any]


def line(step: float, reach: float = REACH) -> Real:
    """Uniform points that cover the standard Gaussian to 1e-17."""
    count = int(np.ceil(reach / step))
    return np.asarray(np.arange(-count, count + 1) * (reach / count), np.float64)


def grid(rank: int, step: float) -> tuple[Real, float]:
    """Points (N, rank) of a uniform grid inside the ball of radius REACH, and the cell volume."""
    axis = line(step)
    if rank == 1:
        return axis[:, None], float(axis[1] - axis[0])
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    return points[(points**2).sum(axis=1) <= REACH**2], float((axis[1] - axis[0]) ** 2)


def gaussian(z: Values) -> Values:
    """The standard Gaussian density at (complex) points (N, rank)."""
    return np.asarray(np.exp(-0.5 * (z**2).sum(axis=1)) / (2 * np.pi) ** (0.5 * z.shape[1]))
