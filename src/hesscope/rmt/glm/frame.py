"""Coordinates z of the plane spanned by C^(1/2) w and C^(1/2) w_star, in which h = wᵀx and t = w_starᵀx are affine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..separable.population import Real
from .geometry import MEAN, W_STAR, Geometry, W


@dataclass(frozen=True, eq=False)
class Frame:
    """h = h_mean + h_slope·z, t = t_mean + t_slope·z for z ~ N(0, I_r); B = C^(1/2) [w_star, w] basis is orthonormal.

    An orthonormal basis instead of a pseudo-inverse: w = 0, w_star = 0 and collinear pairs need no special case.
    """

    h_mean: float
    t_mean: float
    h_slope: Real
    t_slope: Real
    basis: Real

    @property
    def rank(self) -> int:
        return int(self.h_slope.size)

    @staticmethod
    def of(geometry: Geometry, with_response: bool) -> Frame:
        gram = np.array([[geometry.inner(i, j, power=1) for j in (W_STAR, W)] for i in (W_STAR, W)])
        columns: list[Real] = []
        # First along w, so that a loss that only sees h needs one dimension.
        for start in (np.array([0.0, 1.0]), np.array([1.0, 0.0])):
            if start[0] and not with_response:
                continue
            rest = start.copy()
            for _ in range(2):
                for column in columns:
                    rest = rest - column * (column @ gram @ rest)
            length = float(rest @ gram @ rest)
            if length > 1e-20 * float(start @ gram @ start):
                columns.append(rest / np.sqrt(length))
        basis = np.stack(columns, axis=1) if columns else np.zeros((2, 0))
        slopes = gram @ basis
        return Frame(geometry.inner(W, MEAN), geometry.inner(W_STAR, MEAN), slopes[1], slopes[0], basis)
