"""Figure 5: the left spike due to w; when its gap closes, and why it is not always a merger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import CYCLE, new_figure
from ...results.claims import Outcome
from ...rmt import GLM
from ...rng import Rng
from ..declared import at_least, at_most, less, more, standard_errors
from ..recipe import Findings, experiment
from . import PAPER
from ._runs import alternating, distance, draw, law_claim, panel, pooled, repeated
from ._sweep import deviation, draw_sweep, simulated, theory

HERE, SECTION = f"{PAPER}, Figure 5", f"{PAPER}, Section 3.2.2"
CLAIMS = (
    law_claim("law", "Theorem 1, Figure 5 left", "|w| = 2"),
    more("left", f"{HERE} left", "|w| = 2: the smallest eigenvalue lies below the support (distance over the width of the "
         "support; mean over runs)", 0, "“a left isolated eigenvalue”"),
    standard_errors("location", f"{HERE} middle, Theorem 2", "Above the threshold the smallest eigenvalue is the predicted "
                    "spike"),
    standard_errors("gap", f"{HERE} middle", "Its distance to the support of the law is the predicted eigengap"),
    standard_errors("alignment", f"{HERE} right, Theorem 3", "The squared cosine of its eigenvector with w is the predicted "
                    "one"),
    less("gap-falls", f"{HERE} middle", "c = 0.1 (theory): the eigengap rises and falls back as |w| grows (last over peak)", 1,
         "“non-monotonic behavior”: it decreases again"),
    at_least("merges", SECTION, "c = 0.1 (theory): the spike merges into the bulk again (number of mergers up to the widest |w|)", 1,
             "“the eigengap tends to vanish” as the spike goes back into the bulk"),
    at_most("gap-relative", SECTION, "c = 0.1 (theory): the gap closes because the whole left end shrinks, not by a merger (1 - gap "
            "over edge at the widest |w|)", 0.5, "more than half of the way from 0 to the edge stays empty",
            corrected=True, basis="convention"),
    at_least("merges-at-larger-c", SECTION, "c = 0.35 (theory): the spike appears and merges again (number of mergers)", 1,
             "the same sentence, at a larger ratio", corrected=True),
    at_least("monotone", f"{HERE} right", "c = 0.1 (theory): the alignment grows with |w| as far as one looks (smallest step)", 0.0,
             "“monotonically increasing as |w| grows large”"),
    less("peaks", f"{HERE} right", "c = 0.1 (theory): the alignment peaks and falls (alignment at the widest |w| over its peak)", 1,
         "the opposite of the sentence above", corrected=True),
)  # fmt: skip


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


def run(config: Config) -> Findings:
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
    strong = np.asarray(config.norms) > threshold * (1 + 2 * p ** (-1 / 3))
    left, right = model.law().support[0][0], model.law().support[-1][1]
    bottom = float(np.mean([one.eigenvalues[0] for one in runs]))
    first = wide[0.1]
    peak = int(np.argmax(first["alignment"]))
    measured: dict[str, Any] = {
        "law": distance(model.law(), runs),
        "left": (left - bottom) / (right - left),
        "gap-falls": float(first["gap"][-1] / first["gap"].max()),
        "merges": float(sum(not t.appears for t in transitions[0.1])),
        "gap-relative": 1 - float(first["gap"][-1] / first["edge"][-1]),
        "merges-at-larger-c": (
            float(sum(not t.appears for t in transitions[0.35])),
            ", ".join(f"{'appears' if t.appears else 'merges'} at |w| = {t.norm:.4g}" for t in transitions[0.35]),
        ),
        "monotone": float(np.diff(first["alignment"][first["gap"] > 0]).min()),
        "peaks": (
            float(first["alignment"][-1] / first["alignment"].max()),
            f"{first['alignment'][-1]:.4f} after {first['alignment'].max():.4f} at |w| = {norms[peak]:.3g}",
        ),
    }
    measured |= {key: deviation(points, exact, key, strong) for key in ("location", "gap", "alignment")}
    data: dict[str, Any] = {"spectrum": panel(model, pooled(runs)), "curve": curve, "points": points}
    data["wide"] = {f"{c:g}": value for c, value in wide.items()}
    return data, measured


def figures(outcome: Outcome) -> dict[str, Any]:
    """The paper's three panels, and eigengap relative to the edge and alignment over a wide range of |w|."""
    figure, axes = new_figure(1, 3, width=4.4, height=3.4)
    draw(axes[0], outcome.data["spectrum"], "spectrum, |w| = 2")
    draw_sweep(axes[1:], outcome.data["curve"], outcome.data["points"], "|w|", "w")
    wide, panels = new_figure(1, 2, width=5.0, height=3.4)
    for color, (ratio, curve) in zip(CYCLE, outcome.data["wide"].items(), strict=False):
        relative = np.asarray(curve["gap"]) / np.asarray(curve["edge"])
        panels[0].semilogx(curve["strength"], relative, color=color, label=f"c = {ratio}")
        panels[1].semilogx(curve["strength"], curve["alignment"], color=color, label=f"c = {ratio}")
    panels[0].set(title="eigengap / left edge", xlabel="|w|", ylabel="relative eigengap")
    panels[1].set(title="alignment with w", xlabel="|w|", ylabel="squared cosine")
    for axis in panels:
        axis.legend(fontsize=8, frameon=False)
    return {"fig5": figure, "fig5_wide": wide}


EXPERIMENT = experiment(
    __name__,
    "The left spike due to the model and its transitions",
    f"{PAPER}, Figure 5",
    quick=Config(p=160, n=1600, runs=12, norms=(0.5, 2.0, 5.0), widest=30.0, grid=20),
    default=Config(runs=8),
    paper=Config(),
    chosen="the norms |w| at which to simulate, and the widest |w| of the theory.",
)
