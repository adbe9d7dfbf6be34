"""What the figures share: vectors as in the paper, repeated simulations, their errors and the theory-over-simulation panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from ...measure import AtomicMeasure, Measure
from ...plots.style import MEASURED, THEORY
from ...rmt import GLM
from ...rmt.glm.simulation import Simulation
from ...rng import Rng
from ..declared import Declared, Measured, at_least, at_most
from . import PAPER

Run = TypeVar("Run")
AVERAGED = "the paper draws one matrix; 50 are averaged here, so that there are standard errors."
CERTAIN = 4.0  # standard errors
SHRINK = 2  # the second, smaller size that removes what is left of order 1/p


@dataclass(frozen=True)
class Config:
    """Of figures that are panels: sizes p and n, runs per panel."""

    p: int = 800
    n: int = 6000
    runs: int = 8
    seed: int = 0


def alternating(p: int) -> Any:
    """[-1, ..., -1, 1, ..., 1]/√p, of unit length."""
    return np.repeat([-1.0, 1.0], [p // 2, p - p // 2]) / np.sqrt(p)


def gaussian(p: int, rng: Rng) -> Any:
    """A draw of N(0, I/p)."""
    return rng.numpy().standard_normal(p) / np.sqrt(p)


def repeated(model: GLM, p: int, runs: int, rng: Rng) -> list[Simulation]:
    """Independent simulations of one model."""
    return [model.simulate(p, rng.child("run", run)) for run in range(runs)]


def pooled(runs: list[Simulation]) -> AtomicMeasure:
    """The average spectrum of the runs."""
    return AtomicMeasure.mixture([run.measure for run in runs])


def law_claim(id: str, where: str, what: str) -> Declared:
    """The simulated spectrum follows the law: what `distance` measures is at most 1."""
    return at_most(
        id,
        f"{PAPER}, {where}",
        f"{what}: the simulated spectrum is that of the law (Kolmogorov distance over what is allowed)",
        1.0,
        "1/p, the place of one eigenvalue, which is the order of the bias of linear statistics, plus 4 standard errors of "
        "the distribution function over the runs",
        basis="sampling theory",
    )


def distance(law: Measure, runs: list[Simulation]) -> Measured:
    """The Kolmogorov distance of the average spectrum to the law, over 1/p + 4 standard errors of that average."""
    measured = pooled(runs)
    found = law.kolmogorov(measured)
    p = len(runs[0].eigenvalues)
    points = measured.nodes
    curves = np.array([run.measure.cdf(points) for run in runs])
    error = float(curves.std(axis=0, ddof=1).max()) / np.sqrt(len(runs)) if len(runs) > 1 else 0.0
    allowed = 1 / p + 4 * error
    return found / allowed, f"{found:.4f} of {allowed:.4f} allowed"


def extrapolated(full: Sequence[float], smaller: Sequence[float], truth: float) -> float:
    """How many standard errors the mean lies from the truth, as p -> ∞ from two sizes whose error is of order 1/p.

    With few runs the quotient follows Student's law: it is given as the normal deviate of the same probability.
    """
    mean = (SHRINK * np.mean(full) - np.mean(smaller)) / (SHRINK - 1)
    variance = (SHRINK**2 * np.var(full, ddof=1) + np.var(smaller, ddof=1)) / (SHRINK - 1) ** 2
    quotient = abs(mean - truth) / np.sqrt(variance / len(full))
    return float(stats.norm.isf(max(stats.t.sf(quotient, len(full) - 1), 1e-300)))


def at_two_sizes(full: list[Run], smaller: list[Run], measure: Callable[[Run], float], truth: float) -> Measured:
    """A number of every run at p and at p/2, against its limit."""
    large = [measure(one) for one in full]
    score = extrapolated(large, [measure(one) for one in smaller], truth)
    return score, f"{score:.2f} standard errors: {np.mean(large):.4g}, limit {truth:.4g}"


def growth_claim(id: str, where: str, what: str, because: str) -> Declared:
    """An eigenvalue without an edge to stay at grows with p: what `growth` measures is at least 4."""
    return at_least(
        id,
        where,
        f"{what} grows with p (mean of its logarithm over runs at p, minus that at p/2, in standard errors)",
        CERTAIN,
        f"{because}; with fewer than {CERTAIN:g} standard errors either way it is not decided",
        basis="sampling theory",
    )


def growth(full: Sequence[float], smaller: Sequence[float]) -> Measured:
    """Mean log at p minus that at p/2 in standard errors; a text below 4 of them, where heavy tails decide the sign.

    The quotient follows Student's law (Welch): it is given as the normal deviate of the same probability.
    """
    large, small = np.log(full), np.log(smaller)
    found = stats.ttest_ind(large, small, equal_var=False)
    score = float(np.sign(found.statistic) * stats.norm.isf(max(found.pvalue / 2, 1e-300)))
    shown = f"{score:.2f} standard errors: a factor of {np.exp(large.mean() - small.mean()):.3g}"
    return (score, shown) if abs(score) >= CERTAIN else f"not decidable from {len(large)} runs: {shown}"


def panel(model: GLM, measured: AtomicMeasure) -> dict[str, Any]:
    """The arrays of one theory-over-simulation panel: eigenvalues, the density on a grid, the spikes."""
    law = model.law()
    left, right = law.support[0][0], law.support[-1][1]
    first = min(measured.nodes[0], left) if np.isfinite(left) else float(measured.nodes[0])
    last = max(measured.nodes[-1], right) if np.isfinite(right) else float(measured.nodes[-1])
    span = last - first
    x = np.linspace(first - 0.03 * span, last + 0.03 * span, 400)
    return {
        "eigenvalues": measured.nodes,
        "x": x,
        "density": law.density(x),
        "spikes": np.array([spike.location for spike in model.spikes()]),
    }


def histogram(axis: Any, values: Any, low: float, high: float, bins: int) -> Any:
    """Heights of the drawn bins, relative to all values: some may lie outside."""
    edges = np.linspace(low, high, bins + 1)
    heights = np.histogram(values, edges)[0] / (np.size(values) * (edges[1] - edges[0]))
    axis.stairs(heights, edges, fill=True, color=MEASURED, alpha=0.35, label="simulation")
    return heights


def draw(axis: Any, data: dict[str, Any], title: str, bins: int = 60) -> None:
    """A histogram of eigenvalues under the predicted density, predicted spikes as triangles."""
    x = np.asarray(data["x"])
    heights = histogram(axis, data["eigenvalues"], x[0], x[-1], bins)
    axis.plot(x, data["density"], color=THEORY, lw=1.6, label="theory")
    spikes = np.asarray(data["spikes"])
    if spikes.size:
        values = np.asarray(data["eigenvalues"])
        outside = values[np.interp(values, x, data["density"]) <= 1e-3 * np.max(data["density"])]
        axis.plot(
            outside, np.zeros_like(outside), "|", color=MEASURED, ms=11, clip_on=False, label="simulated, outside"
        )
        axis.plot(spikes, np.zeros_like(spikes), "v", color=THEORY, ms=8, clip_on=False, label="predicted spike")
    top = np.max(np.asarray(data["density"]))
    axis.set(title=title, xlabel="eigenvalue", ylabel="density", ylim=(0, 1.25 * min(top, 4 * np.max(heights))))
    axis.legend(fontsize=8, frameon=False)
