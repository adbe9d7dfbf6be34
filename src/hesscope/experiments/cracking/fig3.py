"""Figure 3: do two eigenvalues of a two-layer linear network sum to tr(H)/D? A theorem in (a), chance in (b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...closed_form import linear_network
from ...measure import Array
from ...plots.style import new_figure
from ...results.claims import Experiment, Outcome
from ...rng import Rng
from ._claims import at_least, at_most, outcome
from ._pairs import decorrelated, draw, orthonormal_weights, rank_excess, stacked, standardised, summary


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


def run(config: Config) -> Outcome:
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
    return outcome(
        "fig3",
        config,
        tables,
        at_most(
            "Orthonormal first layer and decorrelated data: two eigenvalues sum to tr(H)/D exactly (largest relative gap)",
            "Figure 3a, here a theorem",
            float(exact["best"].max()),
            1e-12,
        ),
        at_least(
            "... and no other pair comes close (median second best over tr/D)",
            "Figure 3a",
            float(np.median(exact["second"])),
            1e-3,
        ),
        at_most(
            "Standard initialisation: the best pair is far below the mean eigenvalue, as printed (median ratio, D >= 3)",
            "Figure 3b",
            float(np.median(loose["best"][many] / loose["mean"][many])),
            0.5,
        ),
        at_least(
            "... but only because there are many pairs: for D >= 3 they meet tr(H)/D no better than a random target near it "
            "(mean chance rank minus 1/2, in standard errors)",
            "Figure 3b, corrected: no sign of a pair",
            rank_excess([loose["rank"][many]]),
            -4.0,
        ),
    )


def figures(result: Outcome) -> dict[str, Any]:
    """Gaps against input size in both settings."""
    figure, axes = new_figure(1, 2, width=5.0)
    draw(axes[0], result.config["sizes"], result.data["orthonormal"], "(a) orthonormal, decorrelated")
    draw(axes[1], result.config["sizes"], result.data["standard"], "(b) standard initialisation and data")
    axes[0].legend(fontsize=8)
    return {"fig3": figure}


EXPERIMENT = Experiment(
    name="cracking.fig3",
    title="Two eigenvalues that sum to tr(H)/D",
    source="Cracking the Hessian, Figure 3",
    quick=Config(),
    paper=Config(width=150, sizes=(1, 2, 5, 10, 20, 50, 100, 150), networks=100, samples=152),
    run=run,
    figures=figures,
)
