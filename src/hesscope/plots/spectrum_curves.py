"""What a spectrum figure shows, as plain arrays: the same curves for the page and for the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..measure import Array, AtomicMeasure
from ..results.spectra import SpectralDensity

POINTS = 600


@dataclass(frozen=True, eq=False)
class Sampled:
    """y over x, and where it is an estimate its standard error."""

    x: Array
    y: Array
    stderr: Array | None = None


def signed_log(x: Array, unit: float) -> Array:
    """asinh(x / unit): linear near zero, logarithmic in both directions beyond `unit`."""
    return np.asarray(np.arcsinh(x / unit))


def unit_of(measure: AtomicMeasure) -> float:
    """Where a signed-log axis turns linear: a small share of the spread, so that the bulk is seen as well as the tail."""
    size = np.abs(measure.nodes)
    largest = float(size.max())
    typical = float(np.sqrt(measure.moment(2)))
    return max(1e-2 * typical, 1e-5 * largest, 1e-300)


def density(measure: AtomicMeasure, left: float, right: float, points: int = POINTS) -> Sampled:
    """The smoothed density on a linear axis."""
    x = np.linspace(left, right, points)
    return Sampled(x, *_smoothed(measure, x, lambda nodes: nodes, 0.006 * (right - left)))


def signed_log_density(measure: AtomicMeasure, unit: float, width: float = 0.12, points: int = POINTS) -> Sampled:
    """The density per unit of asinh(λ/unit), at λ."""
    ends = signed_log(measure.nodes[[0, -1]], unit)
    u = np.linspace(float(ends[0]) - 6 * width, float(ends[1]) + 6 * width, points)
    return Sampled(unit * np.sinh(u), *_smoothed(measure, u, lambda nodes: signed_log(nodes, unit), width))


def _smoothed(
    measure: AtomicMeasure, u: Array, place: Callable[[Array], Array], width: float
) -> tuple[Array, Array | None]:
    """The density over u of nodes at `place(node)`, no finer than what was measured, and its standard error.

    Quadrature nodes stand for all eigenvalues up to halfway to their neighbours: drawn sharper they would look like
    structure. Eigenvalues that are known one by one stay sharp.
    """
    probes = measure.probe_nodes if isinstance(measure, SpectralDensity) else ()
    if not isinstance(measure, SpectralDensity) or not probes:
        pushed = AtomicMeasure.of(place(measure.nodes), measure.weights)
        return pushed.density(u, width), None
    nodes = np.concatenate(probes)
    # A probe's nodes are those of several rules of one more point than it has steps, which fill each other's gaps.
    rules = [(p, max(1, p.size // (steps + 1))) for p, steps in zip(probes, measure.steps, strict=True)]
    widths = np.concatenate([np.clip(_spacing(place(probe), count), width, 5 * width) for probe, count in rules])
    order = np.argsort(nodes, kind="stable")  # as the measure of all probes has them
    kernels = _gaussians(u, place(nodes[order]), widths[order])
    weights = np.concatenate(measure.probe_weights)[order] / len(probes)
    known = measure.outliers.size / measure.size
    y = (1 - known) * (kernels @ weights)
    if known:
        y = y + known * AtomicMeasure.of(place(measure.outliers)).density(u, width)
    return y, measure.stderr_of(kernels)


def _spacing(nodes: Array, rules: int) -> Array:
    """How far apart the nodes of one rule are around each of these, ascending and of several rules together."""
    places = np.arange(nodes.size)
    low, high = np.maximum(places - rules, 0), np.minimum(places + rules, nodes.size - 1)
    return np.asarray(0.4 * (nodes[high] - nodes[low]) * rules / np.maximum(high - low, 1))


def _gaussians(u: Array, nodes: Array, widths: Array) -> Array:
    z = (u[:, None] - nodes) / widths
    return np.asarray(np.exp(-0.5 * z * z) / (widths * np.sqrt(2 * np.pi)))


def counts(measure: AtomicMeasure, size: int, sign: int, floor: float = 0.0) -> Sampled:
    """How many eigenvalues exceed |λ| > floor on one side of zero: a staircase over |λ|, largest first."""
    keep = sign * measure.nodes > floor
    values, weights = np.abs(measure.nodes[keep]), measure.weights[keep]
    order = np.argsort(-values)
    return Sampled(values[order], size * np.cumsum(weights[order]))


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
