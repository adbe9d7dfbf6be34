"""Figure 31: posterior variances against the eigenvalues of the layer's Hessian."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from ...pacbayes import Certificate, Settings
from ...plots.style import new_figure
from ...results.claims import Claim, Experiment, Outcome
from ._bounds import ROWS, Training, certificates, prepare

SOURCE = "Wu et al., Appendix H, Figure 31"
METHODS = ("base", "appr", "iter", "iter_m", "local")
BINS = 60


@dataclass(frozen=True)
class Config(Training):
    """A row of Table 10 and the layer to look at."""

    row: str = "T-200^2_10"
    layer: str = "fc1.weight"
    epochs: int = 10
    batch_size: int = 256
    draws: int = 60_000


def run(config: Config) -> Outcome:
    """Variances of one layer, ordered by decreasing eigenvalue, for every method."""
    row = next(row for row in ROWS if row.name == config.row)
    training = Training(**{f.name: getattr(config, f.name) for f in fields(Training)})
    settings = Settings(epochs=config.epochs, batch_size=config.batch_size, draws=config.draws, seed=config.seed)
    found = certificates(prepare(row, training), METHODS, settings)
    data = {method: _ordered(one, found["iter"], config.layer) for method, one in found.items()}
    return Outcome("wu2022.fig31", asdict(config), data, tuple(_claims(data)))


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


def _claims(data: dict[str, Any]) -> list[Claim]:
    rank = {method: found["rank_correlation"] for method, found in data.items()}
    shown = ", ".join(f"{method} {value:+.2f}" for method, value in rank.items())
    top, bottom = (float(data["iter"]["variance"][place]) for place in (0, -1))
    return [
        Claim(
            "In Hessian eigenbases, directions with larger eigenvalues have smaller posterior variance.",
            SOURCE,
            "rank correlation below 0 for every eigenbasis",
            shown,
            all(rank[method] < 0 for method in rank if method != "base"),
        ),
        Claim(
            "A recomputed basis (ITER) makes the order more consistent than one basis (APPR).",
            SOURCE,
            "rank correlation of ITER below that of APPR",
            f"{rank['iter']:+.3f} against {rank['appr']:+.3f}",
            rank["iter"] < rank["appr"],
        ),
        Claim(
            "Variances in ITER's sharpest directions are well below those in its flattest.",
            SOURCE,
            "median of the first bin below half of the last",
            f"{top:.2e} against {bottom:.2e}",
            top < 0.5 * bottom,
        ),
    ]


def figures(outcome: Outcome) -> dict[str, Any]:
    """One panel per method: medians and the 10 to 90 % range, with the prior's variance."""
    figure, axes = new_figure(1, len(outcome.data), width=3.4, height=3.2, squeeze=False, sharey=True)
    for axis, (method, found) in zip(axes[0], outcome.data.items(), strict=True):
        place = np.linspace(0, 100, len(found["variance"]))
        axis.fill_between(place, found["low"], found["high"], alpha=0.25, lw=0, label="10 to 90 %")
        axis.semilogy(place, found["variance"], label="median variance")
        axis.axhline(found["prior"], color="black", lw=0.8, ls=":", label="prior")
        along = " (along iter's axes)" if method == "base" else ""
        axis.set_title(f"{method}{along}: bound {found['bound']:.3f}", fontsize=9)
        axis.set_xlabel("eigenvalue rank, % (largest first)")
    axes[0][0].set_ylabel(f"posterior variance, {outcome.config['layer']}")
    axes[0][0].legend(fontsize=8)
    return {"variances": figure}


EXPERIMENT = Experiment(
    name="wu2022.fig31",
    title="Posterior variance against Hessian eigenvalue",
    source="Wu et al., Figure 31",
    quick=Config(data="digits", row="T-50", sgd_epochs=20, epochs=30, batch_size=100, draws=5_000),
    paper=Config(),
    run=run,
    figures=figures,
)
