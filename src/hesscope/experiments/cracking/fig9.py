"""Figure 9: attention sinks in a layer of larger embedding dimension, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...closed_form import self_attention
from ...plots.style import MEASURED, THEORY, new_figure
from ...results.claims import Experiment, Outcome
from ...rng import Rng
from ._claims import at_least, at_most, outcome
from .fig2 import sink


@dataclass(frozen=True)
class Config:
    """Embedding dimension, key width, batch, sequence length, and the length of the massive first token."""

    embedding: int = 6
    key_width: int = 100
    batch: int = 10
    length: int = 10
    points: int = 9
    massive: float = 3.0
    seed: int = 0


def run(config: Config) -> Outcome:
    """The whole spectrum for sinks of growing strength on a first token that is `massive` times as long."""
    rng = Rng(config.seed).child("fig9").numpy()
    d, k = config.embedding, config.key_width
    x, y = rng.normal(size=(2, config.batch, config.length, d))
    x[:, 0] *= config.massive
    values, queries, keys = (rng.uniform(-1, 1, size=shape) / d**0.5 for shape in ((d, d), (d, k), (d, k)))
    strengths = np.linspace(0, 10, config.points)
    spectra = [self_attention(values, queries, keys, x, y, sink(config.length, t)) for t in strengths]
    bulk = np.array([max(b.value for b in s.bulk) for s in spectra])
    top = np.array([s.outliers[-10:] for s in spectra])
    copies = {b.multiplicity for s in spectra for b in s.bulk}
    perfect = float(np.linalg.eigvalsh(x[:, 0].T @ x[:, 0] / config.batch)[-1])
    return outcome(
        "fig9",
        config,
        {"strengths": strengths, "bulk": bulk, "top": top, "perfect": perfect, "outliers": spectra[0].outliers.size},
        at_most("A sink shrinks the bulk (last over first)", "Figure 9", float(bulk[-1] / bulk[0]), 0.5),
        at_least("... and raises the sharpness (last over first)", "Figure 9", float(top[-1, -1] / top[0, -1]), 1.05),
        at_most(
            "Every bulk value occurs d_K − 2d + 1 times (largest miscount)",
            "Theorem 3.5, generalised",
            float(max(abs(c - (k - 2 * d + 1)) for c in copies)),
            0.0,
        ),
        at_most(
            "The limit of a perfect sink is the largest eigenvalue of mean(x_1 x_1ᵀ) (relative gap at the strongest sink)",
            "Figure 9, explained",
            float(abs(top[-1, -1] / perfect - 1)),
            0.1,
        ),
    )


def figures(result: Outcome) -> dict[str, Any]:
    """Largest bulk value and the ten largest outliers against the sink."""
    data = result.data
    figure, axis = new_figure()
    axis.plot(data["strengths"], data["top"], color=MEASURED, lw=1)
    axis.plot([], [], color=MEASURED, label="ten largest outliers")
    axis.plot(data["strengths"], data["bulk"], "--", color=THEORY, label="largest bulk value")
    axis.axhline(data["perfect"], color=THEORY, ls=":", label="perfect sink")
    axis.set(
        xlabel="sink bias on the first token", ylabel="eigenvalue", yscale="log", title="Sinks in a larger embedding"
    )
    axis.legend(fontsize=8)
    return {"fig9": figure}


EXPERIMENT = Experiment(
    name="cracking.fig9",
    title="Attention sinks, larger embedding",
    source="Cracking the Hessian, Figure 9",
    quick=Config(),
    paper=Config(embedding=10, points=25),
    run=run,
    figures=figures,
)
