"""Footnote 4: the Hessian at a w that was fitted to the same data, here by least squares.

Leaving one example out (Sherman and Morrison) gives ŵᵀx_i = (h + κ y_i)/(1 + κ) with κ -> c/(1 - c) and h = w̃ᵀx_i for a w̃ that
is independent of it: Theorem 1 holds again, with that argument of the loss and a w̃ whose length and angle have closed forms.
Under the exponential loss and labels ±1 this is e^(-c) times the Hessian at (1 - c) w̃.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import ACCENT, THEORY, new_figure
from ...results.claims import Outcome
from ...rmt import GLM
from ...rmt.glm.simulation import Simulation
from ...rng import Rng
from ..declared import more, standard_errors
from ..recipe import Experiment, Findings
from . import PAPER
from ._runs import SHRINK, at_two_sizes, distance, histogram, law_claim, pooled

HERE = "Theorem 1, footnote 4"
CLAIMS = (
    law_claim("fresh", "Theorem 1", "w fitted to other data"),
    more("fitted-as-fresh", f"{PAPER}, footnote 4", "w fitted to the same data: Theorem 1 as it stands, for a w of that length and angle, "
         "does not describe it (Kolmogorov distance over what is allowed)", 1, "“here we consider w independent of x, y”: it is needed"),
    law_claim("fitted", HERE, "w fitted to the same data, its scores corrected by leaving one example out"),
    standard_errors("length", f"{PAPER}, footnote 4", "|w|² of the fit is |θ|² + (1 - |θ|²) c/(1 - c) with θ = E[yx]"),
    standard_errors("mean", f"{PAPER}, footnote 4", "The mean eigenvalue at the fitted w is that of the corrected law"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Sizes p and n, |w*| of the logistic model, and runs."""

    p: int = 200
    n: int = 600
    norm: float = 2.0
    runs: int = 10
    seed: int = 0


def fitted_geometry(norm: float, ratio: float) -> tuple[float, float]:
    """Of least squares on logistic labels ±1: the part of ŵ along w*, and the part across."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(101)
    along = float(weights @ (np.tanh(0.5 * norm * nodes) * nodes) / weights.sum())  # θ = E[yx], by E[y | t] = tanh(t/2)
    return along, float(np.sqrt((1 - along**2) * ratio / (1 - ratio)))


def _draw(p: int, n: int, norm: float, rng: Rng) -> dict[str, Any]:
    """The Hessian at ŵ on the data that it was fitted to, and on as many others."""
    generator = rng.numpy()
    w_star = np.zeros(p)
    w_star[0] = norm
    found: dict[str, Any] = {}
    for key in ("fitted", "fresh"):
        x = generator.standard_normal((n, p))
        y = np.where(generator.random(n) < 0.5 * (1 + np.tanh(0.5 * x @ w_star)), 1.0, -1.0)
        if key == "fitted":
            w = np.linalg.lstsq(x, y, rcond=None)[0]
            found["length"] = float(w @ w)
        g = np.exp(-y * (x @ w))
        found[key] = Simulation((x.T * g) @ x / n, g, np.stack([np.zeros(p), w_star, w]))
    return found


def run(config: Config) -> Findings:
    """Both laws, for c = p/n, beside simulations."""
    ratio = config.p / config.n
    along, across = fitted_geometry(config.norm, ratio)
    shrink = float(np.exp(-ratio))
    model = GLM(loss="exponential", w=[along, across], w_star=[config.norm, 0.0], mean=[0.0, 0.0], ratio=ratio)
    laws = {"fresh": model.law(), "fitted": model.rescaled(w=1 - ratio).law()}  # the latter of H e^c
    rng = Rng(config.seed).child("liao2021.least_squares")
    full = [_draw(config.p, config.n, config.norm, rng.child("full", k)) for k in range(config.runs)]
    half = [
        _draw(config.p // SHRINK, config.n // SHRINK, config.norm, rng.child("half", k)) for k in range(config.runs)
    ]
    fitted, fresh = ([one[key] for one in full] for key in ("fitted", "fresh"))
    unshrunk = [Simulation(one.hessian / shrink, one.curvatures / shrink, one.vectors) for one in fitted]
    measured: dict[str, Any] = {
        "fresh": distance(laws["fresh"], fresh),
        "fitted-as-fresh": distance(laws["fresh"], fitted),
        "fitted": distance(laws["fitted"], unshrunk),
        "length": at_two_sizes(full, half, lambda one: float(one["length"]), along**2 + across**2),
        "mean": at_two_sizes(
            fitted,
            [one["fitted"] for one in half],
            lambda r: float(r.eigenvalues.mean()),
            shrink * _mean_curvature(along, across, config.norm, 1 - ratio),
        ),
    }
    data: dict[str, Any] = {"eigenvalues": {"fresh": pooled(fresh).nodes, "fitted": pooled(fitted).nodes}}
    x = np.linspace(1e-3, float(np.quantile(pooled(fresh).nodes, 0.995)), 400)
    data |= {
        "x": x,
        "density": {"fresh": laws["fresh"].density(x), "fitted": laws["fitted"].density(x / shrink) / shrink},
    }
    return data, measured


def _mean_curvature(along: float, across: float, norm: float, scale: float) -> float:
    """E[exp(-scale y w̃ᵀx)]: the part across w* is Gaussian, the part along it by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(101)
    weights = weights / weights.sum()
    up = 0.5 * (1 + np.tanh(0.5 * norm * nodes))
    both = up * np.exp(-scale * along * nodes) + (1 - up) * np.exp(scale * along * nodes)
    return float(weights @ both * np.exp(0.5 * (scale * across) ** 2))


def figures(result: Outcome) -> dict[str, Any]:
    """Histograms at fitted and at independent data under both laws."""
    data = result.data
    figure, axes = new_figure(1, 2, width=4.6, height=3.4, sharey=True)
    titles = {"fresh": "w independent of the data", "fitted": "w fitted to these data"}
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        histogram(axis, data["eigenvalues"][key], 0.0, float(data["x"][-1]), 50)
        axis.plot(
            data["x"], data["density"]["fresh"], color=ACCENT, ls="--" if key == "fitted" else "-", label="Theorem 1"
        )
        if key == "fitted":
            axis.plot(data["x"], data["density"]["fitted"], color=THEORY, label="one example left out")
        axis.set(title=title, xlabel="eigenvalue", ylabel="density")
        axis.legend(fontsize=8, frameon=False)
    return {"least_squares": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "The Hessian at a fitted w",
    "Liao & Mahoney, footnote 4",
    quick=Config(),
    default=Config(p=600, n=1800),
    paper=Config(p=800, n=2400, runs=20),
    chosen="everything: the footnote says that the results extend, and shows nothing.",
)
