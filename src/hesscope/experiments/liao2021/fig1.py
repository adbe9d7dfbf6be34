"""Figure 1: logistic Hessians without and with a spike; phase retrieval, and which end of its spectrum knows w_star."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plots.style import MEASURED, MUTED, THEORY, new_figure
from ...results.claims import Outcome
from ...rmt import GLM
from ...rmt.glm.simulation import Simulation
from ...rng import Rng
from ..declared import less, more, standard_errors
from ..recipe import Findings, experiment
from . import PAPER
from ._runs import (
    AVERAGED,
    SHRINK,
    Config,
    alternating,
    at_two_sizes,
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

HERE = f"{PAPER}, Figure 1"
CLAIMS = (
    *(law_claim(f"law-{name}", f"Theorem 1, Figure 1{name}", f"Panel {name}") for name in "abc"),
    less("no-spike", f"{HERE}a", "w = w* = mean: number of predicted isolated eigenvalues (theory)", 1, "“absence of a spike”"),
    more("spike", f"{HERE}b", "Independent w: the first gap of the eigenvalues from the right over the second, compared "
         "with that in (a)", 1, "“presence of a right-hand side spike”"),
    standard_errors("spike-location", f"{HERE}b, Theorem 2", "The isolated eigenvalue lies where Theorem 2 says"),
    standard_errors("spike-alignment", f"{HERE}b, Theorem 3", "Its eigenvector's squared cosine with the mean is that of "
                    "Theorem 3"),
    standard_errors("negative", f"{HERE}c", "Phase retrieval: the share of negative eigenvalues is that of the law"),
    growth_claim("unbounded", f"{HERE}c, Remark 1", "Phase retrieval: the isolated eigenvalues belong to an unbounded law: the "
                 "largest one", "“due to a finite-dimensional effect”: the edge of an unbounded law moves outwards"),
    less("top-is-w-star", f"{HERE}d", "The eigenvector of the LARGEST eigenvalue estimates w* (squared cosine with w, minus "
         "that with w*)", 0, "“the top eigenvector is known to be a (noisy) estimate of w*”"),
    more("bottom-is-w-star", f"{HERE}d", "The eigenvector of the SMALLEST eigenvalue estimates w* (squared cosine with w*, "
         "minus that with w)", 0, "the sentence above, at the other end", corrected=True),
    less("two-levels", f"{HERE}d", "Its entries scatter around the two levels ±1/√p of w* (spread within a level over the "
         "distance of the levels' means)", 0.5, "“noisy estimate”: the two levels can be told apart", corrected=True, basis="convention"),
)  # fmt: skip


def run(config: Config) -> Findings:
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
    (spike,) = models["b"].spikes()
    ends = {
        end: np.mean([[r.alignment(i).w_star, r.alignment(i).w] for r in runs["c"]], axis=0)
        for end, i in (("left", 0), ("right", -1))
    }
    vector = _bottom(models["c"], p, rng.child("as given"))
    half = {name: repeated(models[name], p // SHRINK, config.runs, rng.child(name, "smaller")) for name in "bc"}
    measured: dict[str, Any] = {f"law-{name}": distance(models[name].law(), runs[name]) for name in models}
    measured |= {
        "no-spike": float(len(models["a"].spikes())),
        "spike": _first_gaps(runs["b"]) / _first_gaps(runs["a"]),
        "spike-location": at_two_sizes(
            runs["b"], half["b"], lambda r: float(r.eigenvalues[-1]), spike.location
        ),
        "spike-alignment": at_two_sizes(
            runs["b"], half["b"], lambda r: r.alignment(-1).mean, spike.alignment.mean
        ),
        "negative": at_two_sizes(
            runs["c"], half["c"], lambda r: float(np.mean(r.eigenvalues < 0)),
            float(models["c"].law().cdf(0.0)),
        ),
        "unbounded": growth(*([r.eigenvalues[-1] for r in found] for found in (runs["c"], half["c"]))),
        "top-is-w-star": float(ends["right"][1] - ends["right"][0]),
        "bottom-is-w-star": float(ends["left"][0] - ends["left"][1]),
        "two-levels": vector["overlap"],
    }  # fmt: skip
    data["vector"], data["ends"] = vector, ends
    return data, measured


def _first_gaps(runs: list[Simulation]) -> float:
    """The mean over runs of (λ₁ - λ₂)/(λ₂ - λ₃)."""
    return float(
        np.mean([r.eigenvalues[-1] - r.eigenvalues[-2] for r in runs])
        / np.mean([r.eigenvalues[-2] - r.eigenvalues[-3] for r in runs])
    )


def _bottom(model: GLM, p: int, rng: Rng) -> dict[str, Any]:
    """The eigenvector of the smallest eigenvalue in the coordinates of w*, whose entries have two levels."""
    one = model.simulate(p, rng, as_given=True)
    w_star = one.vectors[1] / np.linalg.norm(one.vectors[1])
    vector = np.linalg.eigh(one.hessian)[1][:, 0]
    vector = vector * np.sign(vector @ w_star)
    low, high = vector[w_star < 0], vector[w_star > 0]
    spread = 0.5 * (low.std() + high.std())
    return {
        "eigenvector": vector,
        "w_star": w_star,
        "levels": np.array([low.mean(), high.mean()]),
        "overlap": float(spread / abs(high.mean() - low.mean())),
    }


def figures(outcome: Outcome) -> dict[str, Any]:
    """Three spectra, and the bottom eigenvector of phase retrieval against w_star."""
    figure, axes = new_figure(2, 2, width=5.2, height=3.4)
    titles = ("(a) logistic, w = w* = mean", "(b) logistic, independent w", "(c) phase retrieval")
    for axis, name, title in zip(axes.ravel(), "abc", titles, strict=False):
        draw(axis, outcome.data[name], title)
    values = np.asarray(outcome.data["c"]["eigenvalues"])
    axes[1, 0].plot(values, np.zeros_like(values), "|", color=MEASURED, ms=10, clip_on=False, label="eigenvalues")
    axes[1, 0].legend(fontsize=8, frameon=False)
    vector, last = outcome.data["vector"], axes[1, 1]
    index = np.arange(1, len(vector["w_star"]) + 1)
    last.plot(index, vector["eigenvector"], ".", color=MEASURED, ms=3, label="entries of the eigenvector")
    last.plot(index, vector["w_star"], color=MUTED, lw=1.5, label="w*/|w*|")
    halves = [index[vector["w_star"] < 0], index[vector["w_star"] > 0]]
    for half, level, label in zip(halves, vector["levels"], ("their means", None), strict=True):
        last.plot([half[0], half[-1]], [level, level], color=THEORY, lw=1.5, label=label)
    last.set(title="(d) eigenvector of the SMALLEST eigenvalue", xlabel="coordinate", ylabel="entry")
    last.legend(fontsize=8, frameon=False)
    return {"fig1": figure}


EXPERIMENT = experiment(
    __name__,
    "Hessian spectra of logistic regression and phase retrieval",
    f"{PAPER}, Figure 1",
    quick=Config(p=240, n=1800, runs=6),
    default=Config(),
    paper=Config(runs=50),
    chosen=AVERAGED,
)
