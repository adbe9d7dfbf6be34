"""Figure 3: do two eigenvalues of a two-layer linear network sum to tr(H)/D? A theorem in (a), chance in (b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...closed_form import linear_network
from ...measure import Array
from ...plots.style import new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import at_least, equal, less, more
from ..recipe import Experiment, Findings
from . import PAPER
from ._pairs import decorrelated, draw, orthonormal_weights, rank_excess, stacked, standardised, summary

CLAIMS = (
    equal("theorem", f"{PAPER}, Figure 3a", "Orthonormal first layer, decorrelated data: two eigenvalues sum to tr(H)/D "
          "(largest relative gap); here a theorem", 1e-12),
    more("orders", f"{PAPER}, Figure 3a", "... and no other pair comes close (log10 of second best over best gap, median; gaps "
         "below rounding count as rounding)", 2, "“orders of magnitude smaller than the second closest”: more than one", basis="convention"),
    less("standard-close", f"{PAPER}, Figure 3b", "Standard initialisation: the best pair misses tr(H)/D by less than the mean "
         "eigenvalue (median quotient, D >= 3)", 1, "the reference line of the figure, which the curve stays below"),
    less("no-best-pair", f"{PAPER}, Figure 3b", "... but there is no clear best pair (log10 of second best over best gap, "
         "median, D >= 3)", 2, "“no clear best pair”: not orders of magnitude apart", basis="convention"),
    at_least("better-than-chance", f"{PAPER}, Figure 3b", "The hypothesis holds approximately: pairs meet tr(H)/D better than "
             "they meet a random target near it (1/2 minus the mean chance rank, in standard errors, D >= 3)", 4.0,
             "“the hypothesis holds approximately”, against 4 standard errors of the ranks", basis="sampling theory"),
    at_least("chance", f"{PAPER}, Figure 3b", "It does not: the chance rank is that of a random target (minus its distance "
             "from 1/2, in standard errors, D >= 3)", -4.0, "4 standard errors of the ranks", basis="sampling theory",
             corrected=True),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Hidden width, input sizes (at most the width), networks for each, samples."""

    width: int = 10
    sizes: tuple[int, ...] = (1, 2, 3, 5, 8, 10)
    networks: int = 20
    samples: int = 102
    seed: int = 0


def _standard_weights(rng: Rng, width: int, inputs: int) -> tuple[Array, Array]:
    draw_from = rng.numpy()
    v = draw_from.uniform(-1, 1, size=(width, inputs)) / inputs**0.5
    return draw_from.uniform(-1, 1, size=(1, width)) / width**0.5, v


def run(config: Config) -> Findings:
    """Exact spectra of both families at every input size."""
    tables = {}
    for name, weights, data in (
        ("orthonormal", orthonormal_weights, decorrelated),
        ("standard", _standard_weights, standardised),
    ):
        rows = []
        for inputs in config.sizes:
            rng = Rng(config.seed).child("fig3", name, inputs)
            spectra = []
            for network in range(config.networks):
                x, y = data(rng.child("data", network), config.samples, inputs)
                w, v = weights(rng.child("weights", network), config.width, inputs)
                spectra.append(linear_network(w, v, x, y).eigenvalues)
            rows.append(summary(inputs, spectra, rng.child("chance")))
        tables[name] = stacked(rows)
    many = [i for i, inputs in enumerate(config.sizes) if inputs >= 3]
    exact, loose = tables["orthonormal"], tables["standard"]
    excess = rank_excess([loose["rank"][many]])
    return tables, {
        "theorem": float(exact["best"].max()),
        "orders": _orders(exact),
        "standard-close": float(np.median(loose["best"][many] / loose["mean"][many])),
        "no-best-pair": _orders({key: table[many] for key, table in loose.items()}),
        "better-than-chance": -excess,
        "chance": -abs(excess),
    }


def _orders(table: dict[str, Array]) -> float:
    """The median of log10(second best / best gap)."""
    return float(np.median(np.log10(np.maximum(table["second"], 1e-15) / np.maximum(table["best"], 1e-15))))


def figures(result: Outcome) -> dict[str, Any]:
    """Gaps against input size in both settings."""
    figure, axes = new_figure(1, 2, width=5.0)
    draw(axes[0], result.config["sizes"], result.data["orthonormal"], "(a) orthonormal, decorrelated")
    draw(axes[1], result.config["sizes"], result.data["standard"], "(b) standard initialisation and data")
    axes[0].legend(fontsize=8)
    return {"fig3": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "Two eigenvalues that sum to tr(H)/D",
    "Cracking the Hessian, Figure 3",
    quick=Config(),
    default=Config(networks=100),
    paper=Config(width=150, sizes=(1, 2, 5, 10, 20, 50, 100, 150), networks=100, samples=152),
    chosen="the input sizes; width 10 with 102 samples, the paper's other case, is the default size.",
)
