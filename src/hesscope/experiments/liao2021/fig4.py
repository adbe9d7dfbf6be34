"""Figure 4: the spike due to the data's mean, and its classical phase transition at |mean|² = √c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import new_figure
from ...results.claims import Outcome
from ...rmt import GLM
from ...rng import Rng
from ..declared import at_least, equal, standard_errors
from ..recipe import Findings, experiment
from . import PAPER
from ._runs import alternating, distance, draw, law_claim, panel, pooled, repeated
from ._sweep import deviation, draw_sweep, simulated, theory

HERE = f"{PAPER}, Figure 4"
CLAIMS = (
    law_claim("law", "Theorem 1, Figure 4 left", "|mean|² = 0.8"),
    equal("threshold", f"{PAPER}, Corollary 1", "The spike appears at |mean|² = √c (theory: error)", 1e-8),
    equal("formula", f"{PAPER}, Corollary 1", "Theorem 3 gives the alignment of Corollary 1 (theory: largest error)", 1e-8),
    standard_errors("location", f"{HERE} middle, Theorem 2", "Above the threshold the largest eigenvalue is the predicted "
                    "spike"),
    standard_errors("gap", f"{HERE} middle", "Its distance to the support of the law is the predicted eigengap"),
    standard_errors("alignment", f"{HERE} right, Theorem 3", "The squared cosine of its eigenvector with the mean is the "
                    "predicted one"),
    at_least("monotone", f"{HERE}", "Simulated gap and alignment grow with the strength (smallest step over its standard "
             "error)", -4.0, "“increase monotonically”: no step down by more than 4 standard errors",
             basis="sampling theory"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Sizes, runs per strength, and the strengths |mean|² that are simulated."""

    p: int = 512
    n: int = 2048
    runs: int = 50
    strengths: tuple[float, ...] = (0.1, 0.3, 0.5, 0.65, 0.8, 1.0, 1.25, 1.5)
    seed: int = 0


def run(config: Config) -> Findings:
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
    # Next to the threshold a finite matrix rounds the transition off over a range of p^(-1/3): compare away from it.
    strengths = np.asarray(config.strengths)
    above = strengths > np.sqrt(ratio) * (1 + 2 * p ** (-1 / 3))
    rho = curve["strength"][curve["strength"] > np.sqrt(ratio)]
    formula = (rho**2 - ratio) / (rho**2 + ratio * rho)
    steps = [growing(points[key], points["errors"][:, column]) for key, column in (("gap", 1), ("alignment", 2))]
    measured: dict[str, Any] = {
        "law": distance(model.law(), runs),
        "threshold": abs(threshold.norm**2 - np.sqrt(ratio)),
        "formula": float(np.abs(curve["alignment"][-rho.size :] - formula).max()),
        "monotone": float(min(step.min() for step in steps)),
    }
    measured |= {key: deviation(points, exact, key, above) for key in ("location", "gap", "alignment")}
    data = {"spectrum": panel(model, pooled(runs)), "curve": curve, "points": points}
    return data, measured


def growing(values: np.ndarray[Any, Any], errors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Steps in their standard errors; below the threshold no run may have a gap, and then neither has an error: no step."""
    steps: np.ndarray[Any, Any] = np.diff(values)
    np.divide(steps, np.hypot(errors[1:], errors[:-1]), out=steps, where=steps != 0)
    return steps


def figures(outcome: Outcome) -> dict[str, Any]:
    """Spectrum, eigengap, alignment."""
    figure, axes = new_figure(1, 3, width=4.4, height=3.4)
    draw(axes[0], outcome.data["spectrum"], "spectrum, |mean|² = 0.8")
    draw_sweep(axes[1:], outcome.data["curve"], outcome.data["points"], "|mean|²", "the mean")
    return {"fig4": figure}


EXPERIMENT = experiment(
    __name__,
    "Phase transition of the spike due to the data",
    f"{PAPER}, Figure 4",
    quick=Config(p=160, n=640, runs=12, strengths=(0.1, 0.8, 1.25)),
    default=Config(runs=16),
    paper=Config(),
    chosen="the strengths at which to simulate.",
)
