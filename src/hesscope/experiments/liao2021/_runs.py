"""What the figures share: vectors as in the paper, repeated simulations, claims and the theory-over-simulation panel."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from ...measure import AtomicMeasure, Measure
from ...plots.style import MEASURED, THEORY
from ...results.claims import Claim, Outcome
from ...rmt import GLM
from ...rmt.glm.simulation import Simulation
from ...rng import Rng

PAPER = "Liao & Mahoney"


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


def claim(statement: str, source: str, expected: str, got: Any, holds: Any) -> Claim:
    """A claim with its value shown to four digits."""
    shown = got if isinstance(got, str) else f"{got:.4g}"
    return Claim(statement, f"{PAPER}, {source}", expected, shown, bool(holds))


def close(statement: str, source: str, got: float, limit: float) -> Claim:
    """got <= limit."""
    return claim(statement, source, f"<= {limit:g}", got, got <= limit)


def outcome(name: str, config: Any, data: dict[str, Any], claims: list[Claim]) -> Outcome:
    """An outcome whose config is stored as plain values."""
    return Outcome(f"liao2021.{name}", asdict(config), data, tuple(claims))


def panel(model: GLM, measured: AtomicMeasure, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """The arrays of one theory-over-simulation panel: eigenvalues, the density on a grid, the spikes."""
    law = model.law()
    left, right = law.support[0][0], law.support[-1][1]
    first = min(measured.nodes[0], left) if np.isfinite(left) else float(law.quantile(0.002))
    last = max(measured.nodes[-1], right) if np.isfinite(right) else float(law.quantile(0.998))
    span = last - first
    x = np.linspace(first - 0.03 * span if low is None else low, last + 0.03 * span if high is None else high, 400)
    return {
        "eigenvalues": measured.nodes,
        "x": x,
        "density": law.density(x),
        "spikes": np.array([spike.location for spike in model.spikes()]),
    }


def draw(axis: Any, data: dict[str, Any], title: str, bins: int = 60) -> None:
    """A histogram of eigenvalues under the predicted density, predicted spikes as triangles."""
    x, values = np.asarray(data["x"]), np.asarray(data["eigenvalues"])
    edges = np.linspace(x[0], x[-1], bins + 1)
    heights = np.histogram(values, edges)[0] / (values.size * (edges[1] - edges[0]))
    axis.stairs(heights, edges, fill=True, color=MEASURED, alpha=0.35, label="simulation")
    axis.plot(x, data["density"], color=THEORY, lw=1.6, label="theory")
    spikes = np.asarray(data["spikes"])
    if spikes.size:
        axis.plot(spikes, np.zeros_like(spikes), "v", color=THEORY, ms=8, clip_on=False, label="predicted spike")
    top = np.max(np.asarray(data["density"]))
    axis.set(title=title, xlabel="eigenvalue", ylabel="density", ylim=(0, 1.25 * min(top, 4 * np.max(heights))))
    axis.legend(fontsize=8, frameon=False)


def distance(law: Measure, runs: list[Simulation]) -> float:
    """The Kolmogorov distance between the law and the average spectrum of the runs."""
    return law.kolmogorov(pooled(runs))
