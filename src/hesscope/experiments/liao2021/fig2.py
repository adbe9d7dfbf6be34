"""Figure 2: bounded against unbounded spectra (the loss), one bulk against two (the covariance)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import new_figure
from ...results.claims import Experiment, Outcome
from ...rmt import GLM
from ...rng import Rng
from ._runs import alternating, claim, close, distance, draw, gaussian, outcome, panel, pooled, repeated


@dataclass(frozen=True)
class Config:
    """Sizes p and n, runs per panel, and the Kolmogorov distance that counts as agreement."""

    p: int = 800
    n: int = 6000
    runs: int = 2
    seed: int = 0
    distance: float = 0.02


def run(config: Config) -> Outcome:
    """Laws and simulations of the four panels."""
    rng, p, ratio = Rng(config.seed).child("liao2021.fig2"), config.p, config.p / config.n
    zero, w, mu = np.zeros(p), alternating(p), gaussian(p, rng.child("mean"))
    two = np.repeat([1.0, 2.0], [p // 2, p - p // 2])
    four = np.repeat([1.0, 4.0], [p // 2, p - p // 2])
    models = {
        "a": GLM(loss="logistic", w=w, w_star=zero, mean=zero, ratio=ratio),
        "b": GLM(loss="exponential", w=w, w_star=zero, mean=zero, ratio=ratio),
        "c": GLM(loss="logistic", w=mu, w_star=zero, mean=mu, ratio=ratio, covariance=two),
        "d": GLM(loss="logistic", w=mu, w_star=zero, mean=mu, ratio=ratio, covariance=four),
    }
    runs = {name: repeated(model, p, config.runs, rng.child(name)) for name, model in models.items()}
    data: dict[str, Any] = {name: panel(models[name], pooled(runs[name])) for name in models}
    claims = [
        close(f"Law against the simulated spectrum (Kolmogorov), panel {name}", f"Theorem 1, Figure 2{name}",
              distance(models[name].law(), runs[name]), config.distance)
        for name in models
    ]  # fmt: skip
    support = {name: model.law().support for name, model in models.items()}
    logistic_top = max(float(r.eigenvalues[-1]) for r in runs["a"])
    heavy_top = min(float(r.eigenvalues[-1]) for r in runs["b"])
    tail = float(models["b"].law().quantile(0.99))
    levels = (
        models["d"].law().cdf([0.5 * (support["d"][0][1] + support["d"][1][0])]) if len(support["d"]) == 2 else [0.0]
    )
    claims += [
        claim("Logistic loss: bounded support; the top eigenvalue stays at its edge", "Figure 2a", "within 5 %",
              logistic_top / support["a"][-1][1] - 1, abs(logistic_top / support["a"][-1][1] - 1) < 0.05),
        claim("Exponential loss: the support has no right end", "Figure 2b, Remark 1", "inf",
              support["b"][-1][1], support["b"][-1][1] == np.inf),
        claim("Exponential loss: the top eigenvalue lies far beyond the 99 % quantile", "Figure 2b", f"> {tail:.3g}",
              heavy_top, heavy_top > tail),
        claim("Covariance {1, 2}: one bulk", "Figure 2c", "1", f"{len(support['c'])}", len(support["c"]) == 1),
        claim("Covariance {1, 4}: two bulks", "Figure 2d", "2", f"{len(support['d'])}", len(support["d"]) == 2),
        claim("Covariance {1, 4}: the lower bulk holds half of the eigenvalues", "Figure 2d", "0.5", float(levels[0]),
              abs(float(levels[0]) - 0.5) < 1e-9),
    ]  # fmt: skip
    return outcome("fig2", config, data, claims)


def figures(outcome: Outcome) -> dict[str, Any]:
    """The four panels."""
    figure, axes = new_figure(2, 2, width=5.2, height=3.4)
    titles = ("(a) logistic loss", "(b) exponential loss", "(c) covariance {1, 2}", "(d) covariance {1, 4}")
    for axis, name, title in zip(axes.ravel(), "abcd", titles, strict=True):
        draw(axis, outcome.data[name], title)
    return {"fig2": figure}


EXPERIMENT = Experiment(
    "liao2021.fig2",
    "Bounded and unbounded, single-bulk and two-bulk Hessian spectra",
    "Liao & Mahoney, Figure 2",
    quick=Config(p=240, n=1800, runs=4, distance=0.03),
    paper=Config(),
    run=run,
    figures=figures,
)
