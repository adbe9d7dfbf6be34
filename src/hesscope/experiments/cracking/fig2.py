"""Figure 2: how norms of the parameters and attention sinks move the spectrum of a scalar self-attention layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...closed_form import ClosedFormSpectrum, self_attention
from ...plots.style import ACCENT, MEASURED, THEORY, new_figure
from ...results.claims import Experiment, Outcome
from ...rng import Rng
from ._claims import at_least, at_most, outcome
from ._truth import dense_hessian, largest_gap


@dataclass(frozen=True)
class Config:
    """Key width, batch, sequence length, points on each curve, and how large the first token is."""

    key_width: int = 1000
    batch: int = 10
    length: int = 10
    points: int = 25
    massive: float = 4.0
    seed: int = 0


def sink(length: int, strength: float) -> Any:
    """A bias on the scores of the first token."""
    return strength * (np.arange(length) == 0) * np.ones((length, 1))


def run(config: Config) -> Outcome:
    """Three sweeps: |w_Q| = |w_K|, |w_V|, and the strength of a sink on a massive first token."""
    rng = Rng(config.seed).child("fig2").numpy()
    x, y = rng.normal(size=(2, config.batch, config.length))
    massive = x.copy()
    massive[:, 0] = config.massive
    queries, keys = (u / np.linalg.norm(u) for u in rng.normal(size=(2, config.key_width)))
    norms, strengths = np.geomspace(0.1, 10, config.points), np.linspace(0, 10, config.points)
    sweeps = {
        "key and query norm": [self_attention(1.0, t * queries, t * keys, x, y) for t in norms],
        "value": [self_attention(t, queries, keys, x, y) for t in norms],
        "sink": [self_attention(1.0, queries, keys, massive, y, sink(config.length, t)) for t in strengths],
    }
    table = {name: np.array([_row(s) for s in spectra]) for name, spectra in sweeps.items()}
    table["norms"], table["strengths"] = norms, strengths
    top = {name: table[name][:, 1] for name in sweeps}
    bulk = {name: table[name][:, 0] for name in sweeps}
    return outcome(
        "fig2",
        config,
        table,
        at_most(
            "The closed form equals double backward at key width 6 (relative gap)", "Theorem 3.5", _gap(config), 1e-10
        ),
        at_least(
            "Scaling keys and queries tenfold up from norm 1 raises the sharpness (ratio)",
            "Figure 2a",
            float(top["key and query norm"][-1] / top["key and query norm"][config.points // 2]),
            1.3,
        ),
        at_most(
            "... while the bulk hardly depends on them up to norm 1 (relative change)",
            "Figure 2a",
            float(np.ptp(bulk["key and query norm"][: config.points // 2 + 1]) / bulk["key and query norm"][0]),
            0.05,
        ),
        at_least(
            "The bulk does depend on w_V (largest over smallest)",
            "Figure 2b",
            float(bulk["value"].max() / bulk["value"].min()),
            10.0,
        ),
        at_most(
            "A strong sink on a massive token shrinks the bulk towards 0 (last over first)",
            "Figure 2c",
            float(bulk["sink"][-1] / bulk["sink"][0]),
            0.1,
        ),
        at_least(
            "... but not monotonically: a weak sink first widens it (largest over first)",
            "Figure 2c, corrected",
            float(bulk["sink"].max() / bulk["sink"][0]),
            1.5,
        ),
        at_least(
            "A sink on a massive token raises the sharpness (last over first)",
            "Figure 2c",
            float(top["sink"][-1] / top["sink"][0]),
            1.5,
        ),
        at_most(
            "The limit of a perfect sink is sharpness mean(x_1²) and nothing else (relative gap at the strongest sink)",
            "Figure 2c, explained",
            float(abs(top["sink"][-1] / np.mean(massive[:, 0] ** 2) - 1)),
            0.05,
        ),
    )


def _row(spectrum: ClosedFormSpectrum) -> list[float]:
    return [spectrum.bulk[-1].value, *spectrum.outliers[::-1].tolist()]


def _gap(config: Config) -> float:
    rng = Rng(config.seed).child("check").numpy()
    x, y = rng.normal(size=(2, config.batch, config.length))
    value, queries, keys, bias = rng.normal(size=1), *rng.normal(size=(2, 6)), sink(config.length, 2.0)

    def loss(v: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        xs = torch.as_tensor(x)
        scores = (q @ k) / 6**0.5 * xs[:, :, None] * xs[:, None, :] + torch.as_tensor(bias)
        out = v * (torch.softmax(scores, -1) @ xs[:, :, None])[:, :, 0]
        return ((out - torch.as_tensor(y)) ** 2).mean() / 2

    spectrum = self_attention(value, queries, keys, x, y, bias)
    return largest_gap(spectrum.eigenvalues, dense_hessian(loss, [value, queries, keys]))


def figures(result: Outcome) -> dict[str, Any]:
    """Bulk and outliers along the three sweeps."""
    data = result.data
    figure, axes = new_figure(1, 3, width=4.2)
    for axis, (name, places, label) in zip(
        axes,
        (
            ("key and query norm", data["norms"], r"$|w_Q| = |w_K|$"),
            ("value", data["norms"], r"$w_V$"),
            ("sink", data["strengths"], "sink bias on the first token"),
        ),
        strict=True,
    ):
        for column, color, text in ((1, MEASURED, "largest outlier"), (2, ACCENT, "other outliers"), (3, ACCENT, None)):
            axis.plot(places, data[name][:, column], color=color, label=text)
        axis.plot(places, data[name][:, 0], color=THEORY, label="bulk ±γ")
        axis.plot(places, -data[name][:, 0], color=THEORY)
        axis.set(xlabel=label, ylabel="eigenvalue")
        axis.set_yscale("symlog", linthresh=1e-2)
        if name != "sink":
            axis.set_xscale("log")
    axes[0].legend(fontsize=8)
    return {"fig2": figure}


EXPERIMENT = Experiment(
    name="cracking.fig2",
    title="Norms and attention sinks in the spectrum of self-attention",
    source="Cracking the Hessian, Figure 2",
    quick=Config(),
    paper=Config(points=100),
    run=run,
    figures=figures,
)
