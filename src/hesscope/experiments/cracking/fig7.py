"""Figure 7: the spectrum of a scalar linear network grows with the variance of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...closed_form import linear_network
from ...plots.style import ACCENT, MEASURED, THEORY, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import equal, standard_errors
from ..recipe import Experiment, Findings
from . import PAPER

CLAIMS = (
    standard_errors("sharpness", f"{PAPER}, Figure 7", "The largest eigenvalue grows in proportion to the input variance, up to "
                    "the sampling noise of mean(yx)"),
    standard_errors("bulk", f"{PAPER}, Figure 7", "The bulk is |<w, v>| σ² up to the sampling noise of mean(yx)"),
    equal("sum", f"{PAPER}, Theorem 3.1", "The two outliers sum to tr H = σ²(|w|² + |v|²) (relative gap)", 1e-12),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Hidden width, samples, and the largest input variance of the sweep."""

    width: int = 100
    samples: int = 100_000
    largest: float = 20.0
    points: int = 20
    seed: int = 0


def run(config: Config) -> Findings:
    """One network at standard initialisation, inputs scaled to each variance, targets independent of them."""
    rng = Rng(config.seed).child("fig7").numpy()
    w = rng.uniform(-1, 1, size=config.width) / config.width**0.5
    v = rng.uniform(-1, 1, size=config.width)
    x, y = rng.normal(size=(2, config.samples))
    variances = np.linspace(0, config.largest, config.points + 1)[1:]
    spectra = [linear_network(w, v, s**0.5 * x, y) for s in variances]
    outliers = np.array([s.outliers for s in spectra])
    bulk = np.array([s.bulk[-1].value for s in spectra])
    noise = np.sqrt(variances / config.samples)  # of mean(yx), which alone breaks proportionality
    # Without it the spectrum is proportional to σ²; by Weyl it moves every eigenvalue by at most |mean(yx)|.
    clean = [linear_network(w, v, s**0.5 * x, 0 * y) for s in variances]
    sharp = np.array([s.outliers[1] for s in clean])
    wide = np.mean(x**2) * variances * (w @ w + v @ v)
    return {"variances": variances, "outliers": outliers, "bulk": bulk, "prediction": wide}, {
        "sharpness": float((np.abs(outliers[:, 1] - sharp) / noise).max()),
        "bulk": float((np.abs(bulk - abs(w @ v) * variances * np.mean(x**2)) / noise).max()),
        "sum": float(np.abs(outliers.sum(axis=1) / wide - 1).max()),
    }


def figures(result: Outcome) -> dict[str, Any]:
    """Outliers and bulk against the variance."""
    data = result.data
    figure, axis = new_figure()
    axis.plot(data["variances"], data["outliers"][:, 1], "o", ms=4, color=MEASURED, label="largest outlier")
    axis.plot(data["variances"], data["outliers"][:, 0], "s", ms=4, color=ACCENT, label="smaller outlier")
    axis.plot(data["variances"], data["bulk"], color=THEORY, label="bulk ±d")
    axis.plot(data["variances"], -data["bulk"], color=THEORY)
    axis.plot(data["variances"], data["prediction"], "--", color=THEORY, lw=1, label=r"$\sigma^2(|w|^2 + |v|^2)$")
    axis.set(xlabel=r"input variance $\sigma_x^2$", ylabel="eigenvalue", title="Data scale moves the whole spectrum")
    axis.set_yscale("symlog", linthresh=0.1)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(fontsize=8, loc="center right")
    return {"fig7": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "Data scale and the spectrum of a linear network",
    "Cracking the Hessian, Figure 7",
    quick=Config(samples=20_000),
    default=Config(),
    paper=Config(),
    chosen="width 100, which the paper does not give.",
)
