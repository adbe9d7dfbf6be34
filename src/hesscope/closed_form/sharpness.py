"""What the sharpness of a scalar linear network is made of, and which phase of learning it is in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..errors import refuse
from ..measure import Array
from ..result import Result
from ._inputs import finite, same_length


@dataclass(frozen=True)
class SharpnessParts(Result):
    """λ_max = norm + ½ √(imbalance + non_collinearity + deviation), in the units of the paper's equation (2)."""

    norm: float
    imbalance: float
    non_collinearity: float
    deviation: float

    @property
    def sharpness(self) -> float:
        return self.norm + 0.5 * float(np.sqrt(self.imbalance + self.non_collinearity + self.deviation))

    @property
    def smaller_outlier(self) -> float:
        return self.norm - 0.5 * float(np.sqrt(self.imbalance + self.non_collinearity + self.deviation))


@dataclass(frozen=True)
class LearningPhase(Result):
    """ "early" (ρ ≤ 1/3), "late" (1/3 < ρ ≤ 1) or "divergent" (ρ > 1), with ρ = ⟨w, v⟩/θ* and θ* the least-squares slope."""

    name: str
    ratio: float
    smaller_outlier: float


def sharpness_parts(w: ArrayLike, v: ArrayLike, x: ArrayLike, y: ArrayLike) -> SharpnessParts:
    """λ_max = ½σ²(|w|² + |v|²) + ½ √((σ²|w|² − σ²|v|²)² + 4σ⁴(|w|²|v|² − ⟨w,v⟩²) + 4(2σ²⟨w,v⟩ − mean(yx))²).

    All weights (m,), x and y (n,). Reference: "Cracking the Hessian", equation (2).
    """
    w_, v_, x_, y_ = _scalar_network(w, v, x, y)
    variance, product = float(np.mean(x_**2)), float(w_ @ v_)
    ww, vv = float(w_ @ w_), float(v_ @ v_)
    long, short, longer = (w_, v_, ww) if ww >= vv else (v_, w_, vv)
    # |w|²|v|² − ⟨w,v⟩² as a squared distance: no cancellation for nearly parallel weights.
    off_axis = short - (product / longer) * long if longer > 0 else short
    return SharpnessParts(
        norm=0.5 * variance * (ww + vv),
        imbalance=(variance * (ww - vv)) ** 2,
        non_collinearity=4.0 * variance**2 * longer * float(off_axis @ off_axis),
        deviation=4.0 * (2.0 * variance * product - float(np.mean(x_ * y_))) ** 2,
    )


def learning_phase(w: ArrayLike, v: ArrayLike, x: ArrayLike, y: ArrayLike) -> LearningPhase:
    """Phase of ρ = ⟨w, v⟩ mean(x²)/mean(yx): the smaller outlier is ≥ 0 exactly when 1/3 ≤ ρ ≤ 1.

    The printed inequalities in ⟨w, v⟩ itself fail for θ* < 0; in ρ they hold for both signs. θ* = 0 with ⟨w, v⟩ ≠ 0 is
    divergent. Reference: "Cracking the Hessian", Appendix C.
    """
    w_, v_, x_, y_ = _scalar_network(w, v, x, y)
    variance, product, target = float(np.mean(x_**2)), float(w_ @ v_), float(np.mean(x_ * y_))
    if variance == 0:
        refuse("a learning phase needs some x that is not 0", "x = 0", "Without inputs there is nothing to learn.")
    at_rest = 1.0 if product == 0 else float("inf")
    ratio = product * variance / target if target != 0 else at_rest
    name = "early" if ratio <= 1 / 3 else "late" if ratio <= 1 else "divergent"
    return LearningPhase(name, ratio, sharpness_parts(w_, v_, x_, y_).smaller_outlier)


def _scalar_network(w: ArrayLike, v: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array, Array, Array]:
    w_, v_, x_, y_ = (finite(name, value, (1,)) for name, value in zip("wvxy", (w, v, x, y), strict=True))
    same_length(w=w_.size, v=v_.size)
    same_length(x=x_.size, y=y_.size)
    return w_, v_, x_, y_
