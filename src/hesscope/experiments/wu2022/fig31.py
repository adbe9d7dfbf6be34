"""Figure 31: posterior variances against the eigenvalues of the layer's Hessian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from ...pacbayes import Certificate
from ...plots.style import panel_grid
from ...results.claims import Outcome
from ..declared import less
from ..recipe import Findings, experiment
from ._bounds import CHOSEN, PAPER, ROWS, Optimised, certificates, prepare, settings_of, training_of

SOURCE = "Wu et al., Appendix H, Figure 31"
METHODS = ("base", "appr", "iter", "iter_m", "local")
CLAIMS = (
    *(
        less(f"{method}", SOURCE, f"{method}: directions of larger eigenvalue have smaller posterior variance (rank correlation)", 0,
             "“direction associated with larger eigenvalue has a smaller variance”")
        for method in ("appr", "iter", "iter_m")
    ),
    less("consistent", SOURCE, "The effect is more consistent for a recomputed basis (rank correlation of ITER minus that of APPR)", 0,
         "“more significant and consistent for Iterative Hessian”"),
    less("tighter", SOURCE, "... where the bound is also tighter (bound of ITER over that of APPR)", 1,
         "“where the PAC-Bayes bound is also tighter”"),
    less("sharpest", SOURCE, "ITER: variance in the sharpest sixtieth of the directions over that in the flattest (medians)", 1,
         "“sharper directions ... should have smaller variance”"),
)  # fmt: skip
BINS = 60


@dataclass(frozen=True)
class Config(Optimised):
    """A row of Table 10 and the layer to look at."""

    row: str = "T-200^2_10"
    layer: str = "fc1.weight"
    epochs: int = 10
    draws: int = 60_000


def run(config: Config) -> Findings:
    """Variances of one layer, ordered by decreasing eigenvalue, for every method."""
    row = next(row for row in ROWS if row.name == config.row)
    found = certificates(prepare(row, training_of(config)), METHODS, settings_of(config, config.epochs))
    data = {method: _ordered(one, found["iter"], config.layer) for method, one in found.items()}
    return data, _measured(data)


def _ordered(one: Certificate, eigenbasis: Certificate, layer: str) -> dict[str, Any]:
    """Mean variances in bins of decreasing eigenvalue; in the standard basis, variances along ITER's eigenvectors."""
    variance = one.variance[layer]
    if layer in one.rows:
        eigenvalues = one.eigenvalues[layer]
    else:
        eigenvalues = eigenbasis.eigenvalues[layer]
        variance = (eigenbasis.rows[layer].T ** 2) @ variance @ eigenbasis.columns[layer] ** 2
    flat, sizes = variance.flatten(), eigenvalues.flatten()
    order = np.argsort(-sizes, kind="stable")
    bins = np.array_split(order, BINS)
    prior = one.bound.variances[list(one.mean).index(layer) if len(one.bound.variances) > 1 else 0]
    return {
        "variance": np.array([np.median(flat[part]) for part in bins]),
        "low": np.array([np.quantile(flat[part], 0.1) for part in bins]),
        "high": np.array([np.quantile(flat[part], 0.9) for part in bins]),
        "prior": prior,
        "rank_correlation": float(spearmanr(sizes, flat).statistic),
        "bound": one.bound.value,
    }


def _measured(data: dict[str, Any]) -> dict[str, float]:
    rank = {method: found["rank_correlation"] for method, found in data.items()}
    return {
        **{method: rank[method] for method in ("appr", "iter", "iter_m")},
        "consistent": rank["iter"] - rank["appr"],
        "tighter": float(data["iter"]["bound"] / data["appr"]["bound"]),
        "sharpest": float(data["iter"]["variance"][0] / data["iter"]["variance"][-1]),
    }


def figures(outcome: Outcome) -> dict[str, Any]:
    """One panel per method: medians and the 10 to 90 % range, with the prior's variance."""
    figure, axes = panel_grid(len(outcome.data), 3, width=3.4, height=3.0, sharey=True)
    for axis, (method, found) in zip(axes, outcome.data.items(), strict=True):
        place = np.linspace(0, 100, len(found["variance"]))
        axis.fill_between(place, found["low"], found["high"], alpha=0.25, lw=0, label="10 to 90 %")
        axis.semilogy(place, found["variance"], label="median variance")
        axis.axhline(found["prior"], color="black", lw=0.8, ls=":", label="prior")
        along = " (along iter's axes)" if method == "base" else ""
        axis.set_title(f"{method}{along}: bound {found['bound']:.3f}", fontsize=9)
        axis.set_xlabel("eigenvalue rank, % (largest first)")
    axes[0].set_ylabel(f"posterior variance, {outcome.config['layer']}")
    axes[0].legend(fontsize=8)
    return {"variances": figure}


EXPERIMENT = experiment(
    __name__,
    "Posterior variance against Hessian eigenvalue",
    "Wu et al., Figure 31",
    quick=Config(data="digits", row="T-50", sgd_epochs=20, epochs=30, batch_size=100, draws=5_000),
    default=Config(),
    paper=Config(**PAPER, epochs=2000),
    chosen=CHOSEN,
)
