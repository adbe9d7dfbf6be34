"""The loss around the parameters: lines and planes, the quadratic model beside them, and where that model breaks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..measure import Array
from ..result import Result


@dataclass(frozen=True)
class BreakingDistance(Result):
    """Where the quadratic model of a line breaks: between `low` and `high`, in units of the line's direction.

    At `low` it surely held and at `high` it surely did not, beyond the rounding of the loss. `low` is 0 where rounding
    hides every distance at which it might hold; `high` is infinite where no break was seen, up to `low`.
    """

    low: float
    high: float

    @property
    def found(self) -> bool:
        return math.isfinite(self.high)

    @property
    def distance(self) -> float:
        """The middle of the interval; infinite where no break was seen."""
        return (self.low + self.high) / 2

    @property
    def error(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2 if self.found else math.inf

    def __str__(self) -> str:
        if not self.found:
            return f"not before {self.low:.3g}"
        return f"below {self.high:.3g}" if self.low == 0 else f"{self.distance:.4g} ± {self.error:.1g}"


@dataclass(frozen=True, eq=False)
class LossLine(Result):
    """L(θ + t d) at the `places` t, and its quadratic model loss + slope t + curvature t²/2 from exact products.

    `length` is |d|, so that t is a distance of t · `length` in parameters. `slope` = gᵀd and `curvature` = dᵀHd, each
    with the rounding error of its product; `noise` is the measured rounding of one value of the loss. The model breaks
    at the smallest |t| where |L − model| exceeds `share` of its own terms |slope t| + |curvature| t²/2.
    """

    name: str
    along: str  # eigenvector, gradient, step, checkpoint, random or given
    length: float
    places: Array
    losses: Array
    loss: float
    slope: float
    curvature: float
    slope_error: float
    curvature_error: float
    noise: float
    share: float
    backward: BreakingDistance  # towards negative t
    forward: BreakingDistance

    @property
    def breaks(self) -> BreakingDistance:
        """On the nearer side."""
        return BreakingDistance(min(self.backward.low, self.forward.low), min(self.backward.high, self.forward.high))

    def model(self, t: ArrayLike) -> Array:
        """The quadratic model at these places."""
        places = np.asarray(t, dtype=np.float64)
        return np.asarray(self.loss + places * (self.slope + 0.5 * self.curvature * places))


@dataclass(frozen=True, eq=False)
class LossPlane(Result):
    """L(θ + x d₁ + y d₂): `losses[i, j]` at y[i], x[j]; `slopes` = gᵀdᵢ, `curvatures` = dᵢᵀHdⱼ."""

    names: tuple[str, str]
    lengths: tuple[float, float]
    cosine: float  # between the two directions
    x: Array
    y: Array
    losses: Array
    loss: float
    slopes: Array
    curvatures: Array

    def model(self) -> Array:
        """The quadratic model on the same grid."""
        x, y = self.x[None, :], self.y[:, None]
        h = self.curvatures
        straight = self.slopes[0] * x + self.slopes[1] * y
        return np.asarray(self.loss + straight + 0.5 * (h[0, 0] * x**2 + h[1, 1] * y**2) + h[0, 1] * x * y)

    @property
    def explained(self) -> Array:
        """|L − model| relative to the sum of the sizes of the model's terms, at every point; 0 in the middle."""
        x, y = np.abs(self.x[None, :]), np.abs(self.y[:, None])
        h = np.abs(self.curvatures)
        terms = abs(self.slopes[0]) * x + abs(self.slopes[1]) * y
        terms = terms + 0.5 * (h[0, 0] * x**2 + h[1, 1] * y**2) + h[0, 1] * x * y
        apart = np.abs(self.losses - self.model())
        return np.asarray(
            np.where(terms > 0, apart / np.where(terms > 0, terms, 1.0), np.where(apart > 0, np.inf, 0.0))
        )


@dataclass(frozen=True, eq=False)
class Landscape(Result):
    """What `hs.landscape` saw: a line for every direction, the plane of two where it was asked for, and what it took."""

    lines: tuple[LossLine, ...]
    plane: LossPlane | None
    loss: float
    share: float
    dtype: str  # of the parameters that the losses were evaluated at
    passes: int  # over all the data, without derivatives
    products: int
    notes: tuple[str, ...] = ()
    check: str = "unchecked"

    def line(self, name: str) -> LossLine | None:
        """The line whose name begins so."""
        return next((line for line in self.lines if line.name.startswith(name)), None)
