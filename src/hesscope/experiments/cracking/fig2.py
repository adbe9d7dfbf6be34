"""Figure 2: how norms of the parameters and attention sinks move the spectrum of a scalar self-attention layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...closed_form import ClosedFormSpectrum, self_attention
from ...plots.style import ACCENT, MEASURED, THEORY, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import at_most, equal, less, more
from ..recipe import Experiment, Findings
from . import PAPER
from ._truth import double_backward_hessian, largest_gap
from .fig9 import sink

CLAIMS = (
    equal("closed-form", f"{PAPER}, Theorem 3.5", "The closed form equals double backward at key width 6 (relative gap)"),
    more("keys-sharpen", f"{PAPER}, Figure 2a", "Larger key and query norms raise the sharpness (norm 10 over norm 1)", 1,
         "“λ_max explicitly depends on the magnitude of the query and key weights”, which the figure shows growing"),
    less("keys-bulk", f"{PAPER}, Figure 2a", "... more than they move the bulk (|log| of the bulk's change over |log| of the "
         "sharpness's change, norm 1 to 10)", 1, "“the change in the norm does not affect the bulk eigenvalues”"),
    less("keys-bulk-small", f"{PAPER}, Figure 2a", "... and up to norm 1 the bulk changes by less than its distance to the "
         "sharpness (relative change of the bulk over that distance)", 0.01,
         "“approximately constant”: a line that looks flat moves by less than a hundredth of the picture", basis="convention"),
    more("values-bulk", f"{PAPER}, Figure 2b", "The bulk depends on w_V (|log| of its change over that with keys and queries, "
         "norm 0.1 to 1)", 1, "“both the bulk and outlier eigenvalues depend on w_V”"),
    less("sink-bulk", f"{PAPER}, Figure 2c", "A sink on a massive token shrinks the bulk (strongest over none)", 1,
         "“the bulk shrinks towards zero”"),
    at_most("sink-monotone", f"{PAPER}, Figure 2c", "... all the way: the bulk is widest without a sink (largest over first)",
            1.0, "“the larger the attention sink, the smaller the bulk”"),
    more("sink-widens", f"{PAPER}, Figure 2c", "... but a weak sink first widens it (largest over first)", 1,
         "the opposite of the sentence above", corrected=True),
    more("sink-sharpens", f"{PAPER}, Figure 2c", "A sink on a massive token raises the sharpness (strongest over none)", 1,
         "“the largest eigenvalue grows”"),
    less("perfect-sink", f"{PAPER}, Figure 2c, explained", "With a growing sink the sharpness tends to mean(x_1²) (relative "
         "gap at the strongest sink over that at half of it)", 1, "a limit: the gap closes"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Key width, batch, sequence length, points on each curve, and how large the first token is."""

    key_width: int = 1000
    batch: int = 10
    length: int = 10
    points: int = 25
    massive: float = 4.0
    seed: int = 0


def run(config: Config) -> Findings:
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
    sharp, wide, middle = top["key and query norm"], bulk["key and query norm"], config.points // 2
    perfect = np.mean(massive[:, 0] ** 2)
    return table, {
        "closed-form": _gap(config),
        "keys-sharpen": float(sharp[-1] / sharp[middle]),
        "keys-bulk": float(abs(np.log(wide[-1] / wide[middle])) / abs(np.log(sharp[-1] / sharp[middle]))),
        "keys-bulk-small": float(np.ptp(wide[: middle + 1]) / (sharp[0] - wide[0])),
        "values-bulk": float(
            abs(np.log(bulk["value"][middle] / bulk["value"][0])) / max(abs(np.log(wide[middle] / wide[0])), 1e-12)
        ),
        "sink-bulk": float(bulk["sink"][-1] / bulk["sink"][0]),
        "sink-monotone": float(bulk["sink"].max() / bulk["sink"][0]),
        "sink-widens": float(bulk["sink"].max() / bulk["sink"][0]),
        "sink-sharpens": float(top["sink"][-1] / top["sink"][0]),
        "perfect-sink": float(abs(top["sink"][-1] / perfect - 1) / abs(top["sink"][middle] / perfect - 1)),
    }


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
    return largest_gap(spectrum.eigenvalues, double_backward_hessian(loss, [value, queries, keys]))


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
        axis.set_yscale("asinh", linear_width=5e-3)  # smooth where logarithmic turns linear
        low, high = axis.get_ylim()
        powers = 10.0 ** np.arange(-2, 3)  # smaller ones would lie on top of zero
        axis.set_yticks([*(-powers[-powers > low])[::-1], 0, *powers[powers < high]])
        if name != "sink":
            axis.set_xscale("log")
    axes[0].legend(fontsize=8)
    return {"fig2": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "Norms and attention sinks in the spectrum of self-attention",
    "Cracking the Hessian, Figure 2",
    quick=Config(),
    default=Config(points=50),
    paper=Config(points=100),
    chosen="standard normal tokens and targets, a massive first token of 4; the paper does not say.",
)
