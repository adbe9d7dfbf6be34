"""Figure 5: the left spike due to w; when its gap closes, and why it is not always a merger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import CYCLE, new_figure
from ...results.claims import Experiment, Outcome
from ...rmt import GLM
from ...rng import Rng
from ._runs import alternating, claim, close, distance, draw, outcome, panel, pooled, repeated
from ._sweep import draw_sweep, simulated, theory


@dataclass(frozen=True)
class Config:
    """Sizes, runs per norm, the norms |w| that are simulated and the wide range that only the theory covers."""

    p: int = 800
    n: int = 8000
    runs: int = 50
    norms: tuple[float, ...] = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
    widest: float = 40.0
    grid: int = 40
    seed: int = 0
    distance: float = 0.02
    spike: float = 0.02
    alignment: float = 0.03


def run(config: Config) -> Outcome:
    """Spectrum at |w| = 2, sweeps in |w| at the paper's ratio, and the theory at other ratios over a wide range."""
    rng, p, ratio = Rng(config.seed).child("liao2021.fig5"), config.p, config.p / config.n
    zero, direction = np.zeros(p), alternating(p)

    def family(norm: float) -> GLM:
        return GLM(loss="logistic", w=norm * direction, w_star=zero, mean=zero, ratio=ratio)

    norms = np.geomspace(0.3, config.widest, config.grid)
    points = simulated(family, config.norms, "left", "w", p, config.runs, rng.child("sweep"))
    exact = theory(family, list(config.norms), "left", "w")
    curve = theory(family, list(np.linspace(0.2, 1.05 * max(config.norms), config.grid)), "left", "w")
    model = family(2.0)
    runs = repeated(model, p, min(config.runs, 8), rng.child("spectrum"))
    wide, transitions = {}, {}
    for c in (0.1, 0.2, 0.35):
        line = GLM(loss="logistic", w=[1.0], w_star=[0.0], mean=[0.0], ratio=c)
        wide[c] = theory(lambda norm, line=line: line.rescaled(w=norm), list(norms), "left", "w")  # type: ignore[misc]
        transitions[c] = line.transitions("w", norms[:: max(1, config.grid // 20)])
    threshold = transitions[0.1][0].norm
    strong = np.asarray(config.norms) > 1.25 * threshold
    away = strong | (np.asarray(config.norms) < 0.75 * threshold)
    (spike,) = model.spikes()
    peaks = {c: int(np.argmax(wide[c]["alignment"])) for c in wide}
    shown = {
        c: ", ".join(f"{'+' if t.appears else '-'}{t.norm:.4g}" for t in found) for c, found in transitions.items()
    }
    claims = [
        close("Law against the simulated spectrum (Kolmogorov), |w| = 2", "Theorem 1, Figure 5 left",
              distance(model.law(), runs), config.distance),
        claim("The spike is on the left", "Figure 5 left", "left", spike.side, spike.side == "left"),
        close("Spike location (largest relative error)", "Theorem 2, Figure 5 middle",
              float(np.abs(points["location"] / exact["location"] - 1)[strong].max()), config.spike),
        close("Alignment with w (largest error away from the threshold)", "Theorem 3, Figure 5 right",
              float(np.abs(points["alignment"] - exact["alignment"])[away].max()), config.alignment),
        claim("The eigengap rises and falls back towards zero as |w| grows", "Figure 5 middle", "last < 0.1 peak",
              float(wide[0.1]["gap"][-1] / wide[0.1]["gap"].max()), wide[0.1]["gap"][-1] < 0.1 * wide[0.1]["gap"].max()),
        claim("Corrected: at c = 0.1 that is the whole spectrum shrinking, not a merger (transitions, + appears, - merges)",
              "Section 3.2.2", "one, appearing", shown[0.1], [t.appears for t in transitions[0.1]] == [True]),
        claim("A true merger exists at larger ratios: c = 0.35", "Section 3.2.2", "one + then one -", shown[0.35],
              [t.appears for t in transitions[0.35]] == [True, False]),
        claim("Corrected: the alignment is not monotone; it peaks inside the range at c = 0.2 (at |w|, peak, last)",
              "Section 3.2.2", "last < peak - 0.05",
              f"{norms[peaks[0.2]]:.3g}, {wide[0.2]['alignment'].max():.3f}, {wide[0.2]['alignment'][-1]:.3f}",
              wide[0.2]["alignment"][-1] < wide[0.2]["alignment"].max() - 0.05),
    ]  # fmt: skip
    data: dict[str, Any] = {"spectrum": panel(model, pooled(runs)), "curve": curve, "points": points}
    data["wide"] = {f"{c:g}": value for c, value in wide.items()}
    return outcome("fig5", config, data, claims)


def figures(outcome: Outcome) -> dict[str, Any]:
    """The paper's three panels, and eigengap relative to the edge and alignment over a wide range of |w|."""
    figure, axes = new_figure(1, 3, width=4.4, height=3.4)
    draw(axes[0], outcome.data["spectrum"], "spectrum, |w| = 2")
    draw_sweep(axes[1:], outcome.data["curve"], outcome.data["points"], "|w|", "w")
    wide, panels = new_figure(1, 2, width=5.0, height=3.4)
    for color, (ratio, curve) in zip(CYCLE, outcome.data["wide"].items(), strict=False):
        relative = np.asarray(curve["gap"]) / (np.asarray(curve["location"]) + np.asarray(curve["gap"]))
        panels[0].semilogx(curve["strength"], relative, color=color, label=f"c = {ratio}")
        panels[1].semilogx(curve["strength"], curve["alignment"], color=color, label=f"c = {ratio}")
    panels[0].set(title="eigengap / left edge", xlabel="|w|", ylabel="relative eigengap")
    panels[1].set(title="alignment with w", xlabel="|w|", ylabel="squared cosine")
    for axis in panels:
        axis.legend(fontsize=8, frameon=False)
    return {"fig5": figure, "fig5_wide": wide}


EXPERIMENT = Experiment(
    "liao2021.fig5",
    "The left spike due to the model and its transitions",
    "Liao & Mahoney, Figure 5",
    quick=Config(
        p=160, n=1600, runs=12, norms=(0.5, 2.0, 5.0), widest=30.0, grid=20, distance=0.03, spike=0.06, alignment=0.06
    ),
    paper=Config(),
    run=run,
    figures=figures,
)
