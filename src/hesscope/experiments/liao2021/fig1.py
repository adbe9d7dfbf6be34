"""Figure 1: logistic Hessians without and with a spike; phase retrieval, and which end of its spectrum knows w_star."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import MEASURED, MUTED, new_figure
from ...results.claims import Experiment, Outcome
from ...rmt import GLM
from ...rng import Rng
from ._runs import alternating, claim, close, distance, draw, gaussian, outcome, panel, pooled, repeated


@dataclass(frozen=True)
class Config:
    """Sizes p and n, runs per panel, and what counts as agreement at these sizes."""

    p: int = 800
    n: int = 6000
    runs: int = 4
    seed: int = 0
    distance: float = 0.02
    spike: float = 0.02
    alignment: float = 0.03


def run(config: Config) -> Outcome:
    """Laws, spikes and simulations of the three panels."""
    rng, p, ratio = Rng(config.seed).child("liao2021.fig1"), config.p, config.p / config.n
    mu, w, zero = gaussian(p, rng.child("mean")), gaussian(p, rng.child("w")), np.zeros(p)
    models = {
        "a": GLM(loss="logistic", w=mu, w_star=mu, mean=mu, ratio=ratio),
        "b": GLM(loss="logistic", w=w, w_star=mu, mean=mu, ratio=ratio),
        "c": GLM(
            loss="phase_retrieval", response="phase_retrieval", w=w, w_star=2 * alternating(p), mean=zero, ratio=ratio
        ),
    }
    runs = {name: repeated(model, p, config.runs, rng.child(name)) for name, model in models.items()}
    data: dict[str, Any] = {name: panel(models[name], pooled(runs[name])) for name in models}
    claims = [
        close(f"Law against the simulated spectrum (Kolmogorov), panel {name}", f"Theorem 1, Figure 1{name}",
              distance(models[name].law(), runs[name]), config.distance)
        for name in models
    ]  # fmt: skip
    quiet, spikes = models["a"].spikes(), models["b"].spikes()
    claims.append(claim("No spike for w = w_star = mean", "Figure 1a", "0", f"{len(quiet)}", not quiet))
    (spike,) = spikes
    top = float(np.mean([r.eigenvalues[-1] for r in runs["b"]]))
    found = float(np.mean([r.alignment(-1).mean for r in runs["b"]]))
    claims += [
        claim("One spike, on the right, for independent w", "Figure 1b", "right", spike.side, spike.side == "right"),
        close("Its location (relative error)", "Theorem 2", abs(top / spike.location - 1), config.spike),
        close("Its alignment with the mean (error)", "Theorem 3", abs(found - spike.alignment.mean), config.alignment),
    ]
    negative = float(np.mean([np.mean(r.eigenvalues < 0) for r in runs["c"]]))
    share = float(models["c"].law().cdf(0.0))
    ends = {end: runs["c"][0].alignment(index) for end, index in (("left", 0), ("right", -1))}
    mean = {
        end: np.mean([[r.alignment(i).w_star, r.alignment(i).w] for r in runs["c"]], axis=0)
        for end, i in (("left", 0), ("right", -1))
    }
    claims += [
        close("Phase retrieval: share of negative eigenvalues (error)", "Figure 1c", abs(negative - share), 0.02),
        claim("Phase retrieval: the law is unbounded on both sides, so no eigenvalue stays isolated", "Remark 1",
              "(-inf, inf)", str(models["c"].law().support[0]), models["c"].law().support == [(-np.inf, np.inf)]),
        claim("Corrected: w_star sits at the LEFT end (squared cosine with w_star, with w)", "Figure 1d", "w_star > w",
              f"{mean['left'][0]:.3f}, {mean['left'][1]:.3f}", mean["left"][0] > 0.3 > 5 * mean["left"][1]),
        claim("Corrected: the top eigenvector follows w, not w_star (squared cosine with w_star, with w)", "Figure 1d",
              "w > w_star", f"{mean['right'][0]:.3f}, {mean['right'][1]:.3f}", mean["right"][1] > 5 * mean["right"][0]),
    ]  # fmt: skip
    first = runs["c"][0]
    bottom = np.linalg.eigh(first.hessian)[1][:, 0]
    bottom = bottom * np.sign(bottom @ first.vectors[1])
    data["vector"] = {"eigenvector": bottom, "w_star": first.vectors[1] / np.linalg.norm(first.vectors[1])}
    data["ends"] = {end: np.array([a.w_star, a.w]) for end, a in ends.items()}
    return outcome("fig1", config, data, claims)


def figures(outcome: Outcome) -> dict[str, Any]:
    """Three spectra, and the bottom eigenvector of phase retrieval against w_star."""
    figure, axes = new_figure(2, 2, width=5.2, height=3.4)
    titles = ("(a) logistic, w = w* = mean", "(b) logistic, independent w", "(c) phase retrieval")
    for axis, name, title in zip(axes.ravel(), "abc", titles, strict=False):
        draw(axis, outcome.data[name], title)
    vector, last = outcome.data["vector"], axes[1, 1]
    last.plot(vector["w_star"], vector["eigenvector"], ".", color=MEASURED, ms=3, label="entries")
    reach = np.abs(vector["w_star"]).max()
    last.plot([-reach, reach], [-reach, reach], color=MUTED, lw=1, label="identity")
    last.set(
        title="(d) eigenvector of the SMALLEST eigenvalue", xlabel="entry of w*/|w*|", ylabel="entry of eigenvector"
    )
    last.legend(fontsize=8, frameon=False)
    return {"fig1": figure}


EXPERIMENT = Experiment(
    "liao2021.fig1",
    "Hessian spectra of logistic regression and phase retrieval",
    "Liao & Mahoney, Figure 1",
    quick=Config(p=240, n=1800, runs=6, distance=0.03, spike=0.05, alignment=0.06),
    paper=Config(),
    run=run,
    figures=figures,
)
