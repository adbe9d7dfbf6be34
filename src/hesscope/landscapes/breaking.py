"""At which distance a quadratic model of a line breaks: an interval, from values that carry rounding noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..results.landscape import BreakingDistance

NEAREST, FARTHEST = -10, 6  # of the scan, in powers of two times the reach
DEEPEST = -40  # how far in it looks where the model is broken from the start
INSIDE = 3  # more points within the factor of two that holds the break, before it is halved
WIDTH = 0.005  # of the interval, relative: where halving ends
SIGMAS = 4.0
POINTS = 12  # that rounding is measured on: the largest difference, as few of them can be small by chance
SPACING = 1e-5  # of the points that rounding is measured on, relative to the reach


@dataclass(frozen=True)
class Quadratic:
    """loss + slope t + curvature t²/2, with the rounding errors of its coefficients."""

    loss: float
    slope: float
    curvature: float
    slope_error: float = 0.0
    curvature_error: float = 0.0

    def __call__(self, t: float) -> float:
        return self.loss + t * (self.slope + 0.5 * self.curvature * t)

    def terms(self, t: float) -> float:
        """How much the model changes, without cancellation: zero at t = 0 only."""
        return abs(self.slope * t) + 0.5 * abs(self.curvature) * t * t

    def error(self, t: float) -> float:
        return self.slope_error * abs(t) + 0.5 * self.curvature_error * t * t


def rounding_noise(loss: Callable[[float], float], spacing: float) -> float:
    """The rounding of one value of the loss, SIGMAS of it: third differences of a smooth function vanish, noise stays."""
    values = np.array([loss(index * spacing) for index in range(POINTS)])
    if not np.isfinite(values).all():
        return math.inf
    floor = float(np.finfo(np.float64).eps * abs(values[0]))
    third = np.diff(values, 3)
    return SIGMAS * max(
        float(np.abs(third).max()) / math.sqrt(20), floor
    )  # 1 + 9 + 9 + 1: the variance of a difference


def breaking_distance(
    loss: Callable[[float], float], model: Quadratic, sign: int, share: float, noise: float, reach: float
) -> BreakingDistance:
    """The smallest distance on one side at which |loss − model| exceeds `share` of the model's terms.

    Scanned outwards in factors of two, then by halves. The interval ends where the model surely held and where it surely
    did not: `noise` (of one value) and the errors of the coefficients are given to whichever side they favour. A break
    that begins and ends between two points of the scan is not seen.
    """
    seen: dict[float, int] = {}

    def side(t: float) -> int:
        """-1: surely holds, +1: surely broken, 0: within the noise."""
        if t not in seen:
            value = loss(sign * t)
            if not math.isfinite(value):
                seen[t] = 1
            else:
                size = max(1.0, abs(value / model.loss)) if model.loss else 1.0
                doubt = 2 * noise * size + model.error(t)  # of this value and of the one at zero
                apart, allowed = abs(value - model(sign * t)), share * model.terms(t)
                seen[t] = 1 if apart - doubt > allowed else -1 if apart + doubt < allowed else 0
        return seen[t]

    low, high = _bracket(side, reach)
    if not math.isfinite(high) or low == 0.0:
        return BreakingDistance(low, high)
    for place in np.linspace(low, high, INSIDE + 2)[1:-1]:  # the first break of several
        found = side(float(place))
        if found > 0:
            high = float(place)
            break
        low = float(place) if found < 0 else low
    held, broken = low, high
    inner, outer = low, high
    while broken - held > WIDTH * broken:  # where it surely held last
        middle = (held + broken) / 2
        held, broken = (middle, broken) if side(middle) < 0 else (held, middle)
    while outer - inner > WIDTH * outer:  # where it surely broke first
        middle = (inner + outer) / 2
        inner, outer = (inner, middle) if side(middle) > 0 else (middle, outer)
    return BreakingDistance(held, outer)


def _bracket(side: Callable[[float], int], reach: float) -> tuple[float, float]:
    """(last distance that surely holds, first one after it that surely does not) on the scan."""
    low = 0.0
    for power in range(NEAREST, FARTHEST + 1):
        place = reach * 2.0**power
        found = side(place)
        if found < 0:
            low = place
        elif found > 0:
            return (low, place) if power > NEAREST else _inwards(side, reach)
    return low, math.inf


def _inwards(side: Callable[[float], int], reach: float) -> tuple[float, float]:
    """The same where even the nearest point of the scan is broken."""
    high = reach * 2.0**NEAREST
    for power in range(NEAREST - 1, DEEPEST - 1, -1):
        found = side(reach * 2.0**power)
        if found < 0:
            return reach * 2.0**power, high
        if found == 0:  # nearer still, noise hides more
            break
        high = reach * 2.0**power
    return 0.0, high
