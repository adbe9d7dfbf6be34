"""Figure 9: attention sinks in a layer of larger embedding dimension, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...closed_form import self_attention
from ...plots.style import MEASURED, THEORY, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import at_most, less, more
from ..recipe import Experiment, Findings
from . import PAPER

CLAIMS = (
    less("bulk", f"{PAPER}, Figure 9", "The larger the sink, the smaller the bulk (strongest over none)", 1,
         "“the larger the attention sink, the smaller the bulk”"),
    more("sharpness", f"{PAPER}, Figure 9", "... and the larger the outliers (sharpness, strongest over none)", 1,
         "“... and the larger the outlier eigenvalues”"),
    more("top-share", f"{PAPER}, Figure 9", "... all those drawn (mean of the largest 5 %, strongest over none)", 1,
         "“the larger the outlier eigenvalues”, of which the figure draws the largest 5 %"),
    more("perfect", f"{PAPER}, Figure 9, explained", "It depends on the massive token: a perfect sink's sharpness is "
         "λ_max(mean(x_1 x_1ᵀ)) (share of the way there at the strongest sink, from the sharpness without one)", 0.5,
         "a limit: most of the way is gone", corrected=True, basis="convention"),
    at_most("multiplicity", f"{PAPER}, Theorem 3.5, generalised", "Every bulk value occurs d_K - 2d + 1 times (largest "
            "miscount)", 0, "a count"),
)  # fmt: skip


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


def sink(length: int, strength: float) -> Any:
    """A bias on the scores of the first token."""
    return strength * (np.arange(length) == 0) * np.ones((length, 1))


def run(config: Config) -> Findings:
    """The whole spectrum for sinks of growing strength on a first token that is `massive` times as long."""
    rng = Rng(config.seed).child("fig9").numpy()
    d, k = config.embedding, config.key_width
    x, y = rng.normal(size=(2, config.batch, config.length, d))
    x[:, 0] *= config.massive
    values, queries, keys = (rng.uniform(-1, 1, size=shape) / d**0.5 for shape in ((d, d), (d, k), (d, k)))
    strengths = np.linspace(0, 10, config.points)
    spectra = [self_attention(values, queries, keys, x, y, sink(config.length, t)) for t in strengths]
    bulk = np.array([max(b.value for b in s.bulk) for s in spectra])
    shown = max(1, round(0.05 * sum(w.size for w in (values, queries, keys))))  # the largest 5 %
    top = np.array([np.sort(s.eigenvalues)[-shown:] for s in spectra])
    copies = {b.multiplicity for s in spectra for b in s.bulk}
    perfect = float(np.linalg.eigvalsh(x[:, 0].T @ x[:, 0] / config.batch)[-1])
    return {
        "strengths": strengths,
        "bulk": bulk,
        "top": top,
        "perfect": perfect,
        "outliers": spectra[0].outliers.size,
    }, {
        "bulk": float(bulk[-1] / bulk[0]),
        "sharpness": float(top[-1, -1] / top[0, -1]),
        "top-share": float(top[-1].mean() / top[0].mean()),
        "perfect": float((top[-1, -1] - top[0, -1]) / (perfect - top[0, -1])),
        "multiplicity": float(max(abs(c - (k - 2 * d + 1)) for c in copies)),
    }


def figures(result: Outcome) -> dict[str, Any]:
    """Largest bulk value and the largest 5 % of the eigenvalues against the sink."""
    data = result.data
    figure, axis = new_figure()
    axis.plot(data["strengths"], data["top"], color=MEASURED, lw=1)
    axis.plot([], [], color=MEASURED, label="largest 5 % of the eigenvalues")
    axis.plot(data["strengths"], data["bulk"], "--", color=THEORY, label="largest bulk value")
    axis.axhline(data["perfect"], color=THEORY, ls=":", label="perfect sink")
    axis.set(
        xlabel="sink bias on the first token", ylabel="eigenvalue", yscale="log", title="Sinks in a larger embedding"
    )
    axis.legend(fontsize=8)
    return {"fig9": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "Attention sinks, larger embedding",
    "Cracking the Hessian, Figure 9",
    quick=Config(),
    default=Config(embedding=10),
    paper=Config(embedding=10, points=25),
    chosen="standard normal tokens and targets, a first token three times as long, sinks up to a bias of 10.",
)
