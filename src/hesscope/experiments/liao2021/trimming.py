"""Remark 1: phase retrieval has an unbounded spectrum; trimming f(g) = 1{|g| < ε} bounds it and leaves a spike along w*.

At w = 0, g = -(w*ᵀx)², so that trimmed weights keep the examples with a short projection. Their Hessian is P times a sample
covariance of n P examples with variance s < 1 along w*, whose spike is known in closed form: a truth beside Theorems 2, 3.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from ...plots.style import ACCENT, MEASURED, MUTED, THEORY, new_figure
from ...results.claims import Outcome
from ...rmt import GLM
from ...rng import Rng
from ..declared import at_most, less, more, standard_errors
from ..recipe import Findings, experiment
from . import PAPER
from ._runs import SHRINK, at_two_sizes, distance, draw, growth, growth_claim, law_claim, panel, pooled, repeated

HERE = f"{PAPER}, Remark 1"
CLAIMS = (
    growth_claim("unbounded", HERE, "Without trimming the modulus of the outermost eigenvalue, here the smallest,",
                 "“unbounded support”: the edge moves outwards"),
    law_claim("law", "Remark 1, Theorem 1", "Trimmed"),
    less("bounded", HERE, "Trimmed, the spectrum is bounded by that of unit weights (theory: upper edge of the law over (1 + √c)²)", 1 + 1e-9,
         "f(g) <= 1, so that H is at most a sample covariance"),
    at_most("spike", f"{HERE}, Theorem 2", "Its spike lies where that of a sample covariance of the kept examples does (theory: relative gap over "
            "the accuracy that the law reports)", 10.0, "`accuracy` is an error of the integral; a spike may lie ten times as far off", basis="convention"),
    standard_errors("location", f"{HERE}, Theorem 2", "The isolated eigenvalue lies there"),
    standard_errors("alignment", f"{HERE}, Theorem 3", "Its eigenvector's squared cosine with w* is that of the theory"),
    more("helps", HERE, "The trimmed eigenvector knows w* better than the extreme one without trimming (difference of squared cosines)", 0,
         "“some pre-processing function f must be applied”"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Sizes p and n, the bound ε of |g|, |w*|, and runs; bounds of the curve."""

    p: int = 200
    n: int = 2000
    bound: float = 1.0
    norm: float = 1.0
    runs: int = 10
    curve: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
    seed: int = 0


def trimmed(bound: float) -> Any:
    """ℓ''(y, h) of phase retrieval, 3h² - y, after f(t) = 1{|t| < bound}."""
    return lambda y, h: (np.abs(3.0 * h**2 - y) < bound).astype(np.float64)


def truth(bound: float, norm: float, ratio: float) -> tuple[float, float]:
    """Location and squared cosine with w* of the spike of the kept examples' covariance; the edge and 0 where there is none."""
    end = np.sqrt(bound) / norm
    kept = 1 - 2 * stats.norm.sf(end)
    variance = 1 - 2 * end * stats.norm.pdf(end) / kept  # of a standard normal within ±end
    c, away = ratio / kept, variance - 1
    if away**2 <= c:
        return float(kept * (1 - np.sqrt(c)) ** 2), 0.0
    return float(kept * variance * (1 + c / away)), float((1 - c / away**2) / (1 + c / away))


def run(config: Config) -> Findings:
    """The law, the spike and simulations with and without trimming; alignment over the bound."""
    rng, ratio = Rng(config.seed).child("liao2021.trimming"), config.p / config.n
    direction = np.array([config.norm, 0.0])
    common: dict[str, Any] = {"w": np.zeros(2), "w_star": direction, "mean": np.zeros(2), "ratio": ratio}
    models = {
        "raw": GLM(loss="phase_retrieval", response="phase_retrieval", **common),
        "trimmed": GLM(loss=trimmed(config.bound), response="phase_retrieval", **common),
    }
    runs = {name: repeated(model, config.p, config.runs, rng.child(name)) for name, model in models.items()}
    half = {
        name: repeated(model, config.p // SHRINK, config.runs, rng.child(name, 2)) for name, model in models.items()
    }
    with warnings.catch_warnings():  # a weight that jumps is integrated to some 1e-4, which `accuracy` holds
        warnings.simplefilter("ignore")
        law, spikes = models["trimmed"].law(), models["trimmed"].spikes()
        accuracy = models["trimmed"].accuracy[1]
        pictures = {"trimmed": panel(models["trimmed"], pooled(runs["trimmed"]))}
        pictures["raw"] = panel(models["raw"], pooled(runs["raw"]))
    place, cosine = truth(config.bound, config.norm, ratio)
    left = [spike for spike in spikes if spike.side == "left"]
    reach = ([abs(float(one.eigenvalues[0])) for one in found] for found in (runs["raw"], half["raw"]))
    knows = {name: float(np.mean([one.alignment(0).w_star for one in found])) for name, found in runs.items()}
    measured: dict[str, Any] = {
        "unbounded": growth(*reach),
        "law": distance(law, runs["trimmed"]),
        "bounded": float(law.support[-1][1] / (1 + np.sqrt(ratio)) ** 2),
        "spike": abs(left[0].location / place - 1) / accuracy if left else "no spike is predicted",
        "location": at_two_sizes(runs["trimmed"], half["trimmed"], lambda r: float(r.eigenvalues[0]), place),
        "alignment": at_two_sizes(runs["trimmed"], half["trimmed"], lambda r: r.alignment(0).w_star, cosine),
        "helps": knows["trimmed"] - knows["raw"],
    }
    points = []
    for bound in config.curve:
        model = GLM(loss=trimmed(bound), response="phase_retrieval", **common)
        found = [one.alignment(0).w_star for one in repeated(model, config.p, config.runs, rng.child("curve", bound))]
        points.append((np.mean(found), np.std(found, ddof=1) / len(found) ** 0.5))
    fine = np.geomspace(min(config.curve), max(config.curve), 80)
    data = {
        "panels": pictures, "bounds": np.array(config.curve), "alignment": np.array(points), "fine": fine,
        "truth": np.array([truth(bound, config.norm, ratio)[1] for bound in fine]), "raw_alignment": knows["raw"],
    }  # fmt: skip
    return data, measured


def figures(result: Outcome) -> dict[str, Any]:
    """Both spectra, and the squared cosine with w* over the bound."""
    data = result.data
    figure, (left, middle, right) = new_figure(1, 3, width=4.0, height=3.4)
    draw(left, data["panels"]["raw"], "g = -(w*ᵀx)²: unbounded")
    draw(middle, data["panels"]["trimmed"], f"f(g) = 1{{|g| < {result.config['bound']:g}}}: bounded")
    left.legend(fontsize=8, frameon=False, loc="upper left")
    right.plot(data["fine"], data["truth"], color=THEORY, label="theory")
    right.errorbar(
        data["bounds"], data["alignment"][:, 0], 2 * data["alignment"][:, 1], fmt="o", ms=4, color=MEASURED,
        label="simulation ± 2 s.e.",
    )  # fmt: skip
    right.axhline(data["raw_alignment"], color=ACCENT, ls="--", label="without trimming")
    right.axvline(result.config["bound"], color=MUTED, lw=0.8, ls=":")
    right.set(
        xscale="log", xlabel="bound ε", ylabel="squared cosine with w*", ylim=(-0.03, 1.03), title="what it knows"
    )
    right.set_xticks(data["bounds"], [f"{bound:g}" for bound in data["bounds"]])
    right.set_xticks([], minor=True)
    right.legend(fontsize=8, frameon=False)
    return {"trimming": figure}


EXPERIMENT = experiment(
    __name__,
    "Trimming the weights of phase retrieval",
    "Liao & Mahoney, Remark 1",
    quick=Config(),
    default=Config(p=800, n=6000, runs=10),
    paper=Config(p=800, n=6000, runs=20),
    chosen="w = 0, |w*| = 1, ε = 1 and the sizes of Figure 1; the remark draws nothing.",
)
