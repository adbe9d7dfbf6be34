"""Figure 4: the spike due to the data's mean, and its classical phase transition at |mean|² = √c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import new_figure
from ...results.claims import Experiment, Outcome
from ...rmt import GLM
from ...rng import Rng
from ._runs import alternating, claim, close, distance, draw, outcome, panel, pooled, repeated
from ._sweep import draw_sweep, simulated, theory


@dataclass(frozen=True)
class Config:
    """Sizes, runs per strength, the strengths |mean|² that are simulated, and what counts as agreement."""

    p: int = 512
    n: int = 2048
    runs: int = 50
    strengths: tuple[float, ...] = (0.1, 0.3, 0.5, 0.65, 0.8, 1.0, 1.25, 1.5)
    seed: int = 0
    distance: float = 0.02
    spike: float = 0.02
    alignment: float = 0.03


def run(config: Config) -> Outcome:
    """Spectrum at |mean|² = 0.8, eigengap and alignment along the strength."""
    rng, p, ratio = Rng(config.seed).child("liao2021.fig4"), config.p, config.p / config.n
    zero, direction = np.zeros(p), alternating(p)

    def family(strength: float) -> GLM:
        return GLM(loss="logistic", w=zero, w_star=zero, mean=np.sqrt(strength) * direction, ratio=ratio)

    curve = theory(family, list(np.linspace(0.05, 1.6, 63)), "right", "mean")
    points = simulated(family, config.strengths, "right", "mean", p, config.runs, rng.child("sweep"))
    exact = theory(family, list(config.strengths), "right", "mean")
    model = family(0.8)
    runs = repeated(model, p, min(config.runs, 8), rng.child("spectrum"))
    (threshold,) = family(1.0).transitions("mean", np.linspace(0.2, 1.4, 9))
    # Next to the threshold a finite matrix rounds the transition off: compare away from it.
    away = np.abs(np.asarray(config.strengths) / np.sqrt(ratio) - 1) > 0.25
    above = away & (np.asarray(config.strengths) > np.sqrt(ratio))
    rho = curve["strength"][curve["strength"] > np.sqrt(ratio)]
    formula = (rho**2 - ratio) / (rho**2 + ratio * rho)
    claims = [
        close("Law against the simulated spectrum (Kolmogorov)", "Theorem 1, Figure 4 left",
              distance(model.law(), runs), config.distance),
        close("The threshold is |mean|² = √c (error)", "Corollary 1", abs(threshold.norm**2 - np.sqrt(ratio)), 1e-8),
        close("Theorem 3 reproduces the alignment of Corollary 1 (error)", "Corollary 1",
              float(np.abs(curve["alignment"][-rho.size:] - formula).max()), 1e-8),
        close("Spike location (largest relative error)", "Theorem 2, Figure 4 middle",
              float(np.abs(points["location"] / exact["location"] - 1)[above].max()), config.spike),
        close("Alignment (largest error)", "Theorem 3, Figure 4 right",
              float(np.abs(points["alignment"] - exact["alignment"])[away].max()), config.alignment),
        claim("Gap and alignment never fall as the strength grows (smallest steps)", "Figure 4", ">= 0",
              f"{np.diff(curve['gap']).min():.3g}, {np.diff(curve['alignment']).min():.3g}",
              min(np.diff(curve["gap"]).min(), np.diff(curve["alignment"]).min()) >= 0),
    ]  # fmt: skip
    data = {"spectrum": panel(model, pooled(runs)), "curve": curve, "points": points}
    return outcome("fig4", config, data, claims)


def figures(outcome: Outcome) -> dict[str, Any]:
    """Spectrum, eigengap, alignment."""
    figure, axes = new_figure(1, 3, width=4.4, height=3.4)
    draw(axes[0], outcome.data["spectrum"], "spectrum, |mean|² = 0.8")
    draw_sweep(axes[1:], outcome.data["curve"], outcome.data["points"], "|mean|²", "the mean")
    return {"fig4": figure}


EXPERIMENT = Experiment(
    "liao2021.fig4",
    "Phase transition of the spike due to the data",
    "Liao & Mahoney, Figure 4",
    quick=Config(p=160, n=640, runs=12, strengths=(0.1, 0.8, 1.25), distance=0.03, spike=0.05, alignment=0.08),
    paper=Config(),
    run=run,
    figures=figures,
)
