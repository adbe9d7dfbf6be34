"""What a spectrum figure shows, as plain arrays: the same curves for the page and for the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..measure import Array, AtomicMeasure

POINTS = 600


@dataclass(frozen=True, eq=False)
class Curve:
    """y over x."""

    x: Array
    y: Array


def signed_log(x: Array, unit: float) -> Array:
    """asinh(x / unit): linear near zero, logarithmic in both directions beyond `unit`."""
    return np.asarray(np.arcsinh(x / unit))


def unit_of(measure: AtomicMeasure) -> float:
    """Where a signed-log axis turns linear: a small share of the spread, so that the bulk is seen as well as the tail."""
    size = np.abs(measure.nodes)
    largest = float(size.max())
    typical = float(np.sqrt(measure.moment(2)))
    return max(1e-2 * typical, 1e-5 * largest, 1e-300)


def density(measure: AtomicMeasure, left: float, right: float, points: int = POINTS) -> Curve:
    """The smoothed density on a linear axis."""
    width = 0.006 * (right - left)
    x = np.linspace(left, right, points)
    return Curve(x, measure.density(x, width))


def signed_log_density(measure: AtomicMeasure, unit: float, width: float = 0.12, points: int = POINTS) -> Curve:
    """The density per unit of asinh(λ/unit), at λ."""
    pushed = AtomicMeasure.of(signed_log(measure.nodes, unit), measure.weights)
    u = np.linspace(float(pushed.nodes[0]) - 6 * width, float(pushed.nodes[-1]) + 6 * width, points)
    return Curve(unit * np.sinh(u), pushed.density(u, width))


def counts(measure: AtomicMeasure, size: int, sign: int, floor: float = 0.0) -> Curve:
    """How many eigenvalues exceed |λ| > floor on one side of zero: a staircase over |λ|, largest first."""
    keep = sign * measure.nodes > floor
    values, weights = np.abs(measure.nodes[keep]), measure.weights[keep]
    order = np.argsort(-values)
    return Curve(values[order], size * np.cumsum(weights[order]))


def ticks(unit: float, left: float, right: float) -> tuple[tuple[float, str], ...]:
    """Places and labels for a signed-log axis: zero and powers of ten."""
    found = [(0.0, "0")]
    top = max(abs(left), abs(right))
    low, high = int(np.ceil(np.log10(unit))), int(np.floor(np.log10(top)))
    step = max(1, (high - low + 1) // 5)
    for power in range(high, low - 1, -step):
        for sign in (-1, 1):
            value = sign * 10.0**power
            if left <= value <= right:
                found.append((float(np.arcsinh(value / unit)), ("−" if sign < 0 else "") + _power(power)))
    return tuple(sorted(found))


def _power(power: int) -> str:
    return (
        f"{10.0**power:g}"
        if -3 <= power <= 3
        else "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    )
