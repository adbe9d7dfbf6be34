"""Figure 2: bounded against unbounded spectra (the loss), one bulk against two (the covariance)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plots.style import new_figure
from ...results.claims import Outcome
from ...rmt import GLM
from ...rng import Rng
from ..declared import at_least, at_most
from ..recipe import Findings, experiment
from . import PAPER
from ._runs import (
    AVERAGED,
    SHRINK,
    Config,
    alternating,
    distance,
    draw,
    gaussian,
    growth,
    growth_claim,
    law_claim,
    panel,
    pooled,
    repeated,
)

HERE = f"{PAPER}, Figure 2"
CLAIMS = (
    *(law_claim(f"law-{name}", f"Theorem 1, Figure 2{name}", f"Panel {name}") for name in "abcd"),
    at_most("bounded", f"{HERE}a", "Logistic loss: the largest eigenvalue stays at the edge of the support "
            "(distance over p^(-2/3) times the edge)", 4.0, "eigenvalues leave a soft edge by multiples of p^(-2/3) that "
            "follow the Tracy-Widom law, which exceeds 4 once in 10,000 draws", basis="sampling theory"),
    growth_claim("unbounded", f"{HERE}b, Remark 1", "Exponential loss: the largest eigenvalue has no edge to stay at: it",
                 "“unbounded support”"),
    at_most("one-bulk", f"{HERE}c", "Covariance {1, 2}: number of bulks of the law (theory)", 1, "“single bulk”"),
    at_least("two-bulks", f"{HERE}d", "Covariance {1, 4}: number of bulks of the law (theory)", 2, "“two in the case of Fig 2d”", printed=2),
    at_most("gap-empty", f"{HERE}d", "Covariance {1, 4}: simulated eigenvalues between the bulks (more than the one "
            "predicted spike), over all runs", 0, "“multiple bulks”: nothing lies between them"),
    at_most("half", f"{HERE}d", "Covariance {1, 4}: the lower bulk holds half of the simulated eigenvalues (how many more or fewer "
            "lie below the middle of the gap, largest over runs)", 1, "one predicted spike may come out of either bulk"),
)  # fmt: skip


def run(config: Config) -> Findings:
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
    support = {name: model.law().support for name, model in models.items()}
    edge = support["a"][-1][1]
    top = float(np.mean([r.eigenvalues[-1] for r in runs["a"]]))
    half = repeated(models["b"], p // SHRINK, config.runs, rng.child("b", "smaller"))
    measured: dict[str, Any] = {f"law-{name}": distance(models[name].law(), runs[name]) for name in models}
    measured |= {
        "bounded": abs(top / edge - 1) * p ** (2 / 3),
        "unbounded": growth(*([r.eigenvalues[-1] for r in found] for found in (runs["b"], half))),
        "one-bulk": float(len(support["c"])),
        "two-bulks": float(len(support["d"])),
    }
    if len(support["d"]) == 2:
        low, high = support["d"][0][1], support["d"][1][0]
        margin = 0.1 * (high - low)  # of edges, which eigenvalues cross by multiples of p^(-2/3)
        between = [int(np.sum((r.eigenvalues > low + margin) & (r.eigenvalues < high - margin))) for r in runs["d"]]
        spikes = sum(low < spike.location < high for spike in models["d"].spikes())
        measured["gap-empty"] = float(sum(max(0, count - spikes) for count in between))
        below = [np.sum(r.eigenvalues < 0.5 * (low + high)) for r in runs["d"]]
        measured["half"] = float(np.abs(np.array(below) - p // 2).max())
    return data, measured


def figures(outcome: Outcome) -> dict[str, Any]:
    """The four panels."""
    figure, axes = new_figure(2, 2, width=5.2, height=3.4)
    titles = ("(a) logistic loss", "(b) exponential loss", "(c) covariance {1, 2}", "(d) covariance {1, 4}")
    for axis, name, title in zip(axes.ravel(), "abcd", titles, strict=True):
        draw(axis, outcome.data[name], title)
    return {"fig2": figure}


EXPERIMENT = experiment(
    __name__,
    "Bounded and unbounded, single-bulk and two-bulk Hessian spectra",
    f"{PAPER}, Figure 2",
    quick=Config(p=240, n=1800, runs=4),
    default=Config(),
    paper=Config(runs=50),
    chosen=AVERAGED,
)
