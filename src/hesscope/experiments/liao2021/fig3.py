"""Figure 3: when a Hessian looks like Marchenko-Pastur (logistic) and when it does not (exponential)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plots.style import ACCENT, MEASURED, new_figure
from ...results.claims import Outcome
from ...rmt import GLM, MarchenkoPastur
from ...rng import Rng
from ..declared import less, more
from ..recipe import Findings, experiment
from . import PAPER
from ._runs import AVERAGED, Config, alternating, distance, draw, law_claim, panel, pooled, repeated

HERE = f"{PAPER}, Figure 3"
CLAIMS = (
    *(law_claim(f"law-{loss}", "Theorem 1, Figure 3", f"{loss} loss") for loss in ("logistic", "exponential")),
    more("logistic-visual", f"{HERE}a", "Logistic loss: the law is nearer to the matched Marchenko-Pastur law than the bins "
         "of a histogram of 60 can show (1/60 over the Kolmogorov distance of the two LAWS)", 1,
         "“close, at least visually”: a picture of 60 bins resolves 1/60"),
    less("logistic-formally", f"{HERE}a", "Logistic loss: it is a different law all the same (distance of the simulated "
         "spectrum to its own law over that to the matched one)", 1, "“yet formally different”"),
    more("exponential", f"{HERE}c", "Exponential loss: further from its matched law than the logistic loss from its own "
         "(Kolmogorov distances)", 1, "“in sharp contrast”, “away from a Marchenko-Pastur shape”"),
    more("spread", f"{HERE}b, 3d", "The spread of g explains it (theory): std/mean of g, exponential over logistic", 1,
         "“the law of g has a much larger spread”"),
)  # fmt: skip


def run(config: Config) -> Findings:
    """Each spectrum against its law and against a Marchenko-Pastur law matched to its extreme eigenvalues."""
    rng, p, ratio = Rng(config.seed).child("liao2021.fig3"), config.p, config.p / config.n
    zero, w = np.zeros(p), alternating(p)
    data: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    misfit, laws, spread, own = {}, {}, {}, {}
    for loss in ("logistic", "exponential"):
        model = GLM(loss=loss, w=w, w_star=zero, mean=zero, ratio=ratio)
        runs = repeated(model, p, config.runs, rng.child(loss))
        found = pooled(runs)
        low, high = (float(np.mean([r.eigenvalues[i] for r in runs])) for i in (0, -1))
        matched = MarchenkoPastur(ratio, (high - low) / (4.0 * np.sqrt(ratio)))
        shift = low - matched.edges[0]
        points = np.concatenate([found.nodes, np.nextafter(found.nodes, -np.inf)])
        misfit[loss] = float(np.abs(matched.cdf(points - shift) - found.cdf(points)).max())
        laws[loss] = float(np.abs(matched.cdf(points - shift) - model.law().cdf(points)).max())
        own[loss] = model.law().kolmogorov(found)
        g = np.concatenate([r.curvatures for r in runs])
        spread[loss] = float(g.std() / g.mean())
        measured[f"law-{loss}"] = distance(model.law(), runs)
        drawn = panel(model, found)
        drawn.update(matched=matched.density(drawn["x"] - shift), curvatures=g, factor=matched.scale)
        data[loss] = drawn
    measured |= {
        "logistic-visual": (1 / 60 / laws["logistic"], f"distance {laws['logistic']:.4f} against 1/60 = 0.0167"),
        "logistic-formally": own["logistic"] / misfit["logistic"],
        "exponential": misfit["exponential"] / misfit["logistic"],
        "spread": spread["exponential"] / spread["logistic"],
    }
    return data, measured


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


EXPERIMENT = experiment(
    __name__,
    "Marchenko-Pastur-like and other Hessian spectra",
    f"{PAPER}, Figure 3",
    quick=Config(p=240, n=1800, runs=4),
    default=Config(),
    paper=Config(runs=50),
    chosen=AVERAGED,
)
