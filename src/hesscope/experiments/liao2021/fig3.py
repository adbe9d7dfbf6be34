"""Figure 3: when a Hessian looks like Marchenko-Pastur (logistic) and when it does not (exponential)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import ACCENT, MEASURED, new_figure
from ...results.claims import Experiment, Outcome
from ...rmt import GLM, MarchenkoPastur
from ...rng import Rng
from ._runs import alternating, claim, close, draw, outcome, panel, pooled, repeated


@dataclass(frozen=True)
class Config:
    """Sizes p and n, and the number of runs."""

    p: int = 800
    n: int = 6000
    runs: int = 2
    seed: int = 0
    distance: float = 0.02


def run(config: Config) -> Outcome:
    """Each spectrum against its law and against a Marchenko-Pastur law matched to its extreme eigenvalues."""
    rng, p, ratio = Rng(config.seed).child("liao2021.fig3"), config.p, config.p / config.n
    zero, w = np.zeros(p), alternating(p)
    data: dict[str, Any] = {}
    claims, misfit, spread = [], {}, {}
    for loss in ("logistic", "exponential"):
        model = GLM(loss=loss, w=w, w_star=zero, mean=zero, ratio=ratio)
        runs = repeated(model, p, config.runs, rng.child(loss))
        measured = pooled(runs)
        low, high = (float(np.mean([r.eigenvalues[i] for r in runs])) for i in (0, -1))
        matched = MarchenkoPastur(ratio, (high - low) / (4.0 * np.sqrt(ratio)))
        shift = low - matched.edges[0]
        points = np.concatenate([measured.nodes, np.nextafter(measured.nodes, -np.inf)])
        misfit[loss] = float(np.abs(matched.cdf(points - shift) - measured.cdf(points)).max())
        g = np.concatenate([r.curvatures for r in runs])
        spread[loss] = float(g.std() / g.mean())
        fit = model.law().kolmogorov(measured)
        claims.append(close(f"Law against the simulated spectrum (Kolmogorov), {loss} loss", "Theorem 1, Figure 3", fit,
                            config.distance))  # fmt: skip
        drawn = panel(model, measured)
        drawn.update(matched=matched.density(drawn["x"] - shift), curvatures=g, factor=matched.scale)
        data[loss] = drawn
    claims += [
        close("Logistic loss: a shifted Marchenko-Pastur law fits visually (Kolmogorov)", "Figure 3a",
              misfit["logistic"], 0.05),
        claim("Exponential loss: it does not (Kolmogorov)", "Figure 3c", "> 0.3", misfit["exponential"],
              misfit["exponential"] > 0.3),
        claim("The spread of g explains it: std/mean, logistic against exponential", "Figure 3b, 3d", "< 0.3 and > 1",
              f"{spread['logistic']:.3f}, {spread['exponential']:.3f}",
              spread["logistic"] < 0.3 and spread["exponential"] > 1),
    ]  # fmt: skip
    return outcome("fig3", config, data, claims)


def figures(outcome: Outcome) -> dict[str, Any]:
    """Spectra with both laws, and the distribution of g."""
    figure, axes = new_figure(2, 2, width=5.2, height=3.4)
    for row, loss in zip(axes, ("logistic", "exponential"), strict=True):
        data = outcome.data[loss]
        draw(row[0], data, f"{loss} loss")
        row[0].plot(data["x"], data["matched"], color=ACCENT, lw=1.2, ls="--", label="matched Marchenko-Pastur")
        row[0].legend(fontsize=8, frameon=False)
        g = np.asarray(data["curvatures"])
        reach = np.quantile(g, 0.99)
        row[1].hist(g[g <= reach], bins=60, density=True, color=MEASURED, alpha=0.35, label="g of the samples")
        row[1].axvline(float(data["factor"]), color=ACCENT, ls="--", label="matched scale")
        row[1].set(title=f"curvatures, {loss} loss", xlabel="g", ylabel="density")
        row[1].legend(fontsize=8, frameon=False)
    return {"fig3": figure}


EXPERIMENT = Experiment(
    "liao2021.fig3",
    "Marchenko-Pastur-like and other Hessian spectra",
    "Liao & Mahoney, Figure 3",
    quick=Config(p=240, n=1800, runs=4, distance=0.03),
    paper=Config(),
    run=run,
    figures=figures,
)
