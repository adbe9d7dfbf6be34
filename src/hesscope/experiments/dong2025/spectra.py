"""Beyond the paper: the limiting spectra of the blocks of a linear model under cross-entropy, beside eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ...measure import AtomicMeasure
from ...plots.style import MEASURED, THEORY, new_figure
from ...results.claims import Outcome
from ...rmt import block_law
from ...rng import Rng
from ..declared import at_most, less
from ..recipe import Experiment, Findings
from . import SOURCE

BLOCKS = ("diagonal", "off_diagonal")
COUNTS = (2, 10, 100, 1000)
CLAIMS = tuple(
    one
    for classes in COUNTS
    for one in (
        *(
            at_most(f"{block}-{classes}", f"{SOURCE}, Proposition 2", f"C = {classes}, {block.replace('_', '-')} block: the "
                    "spectrum of one network is that of the law (Kolmogorov distance over what is allowed)", 1.0, "the block is a function of N draws of p: by Dvoretzky, Kiefer and Wolfowitz their "
                    "distribution is off by more than 2.2/√N once in 10,000, and the spectrum's by no more than a "
                    "rank of that share allows, 2.2/√N + 1/d", basis="sampling theory")
            for block in BLOCKS
        ),
        less(f"negative-{classes}", f"{SOURCE}, Proposition 2, (56), (61)", f"C = {classes}: off-diagonal blocks are negative, not "
             "positive as printed (largest eigenvalue)", 0, "p_1 p_2 > 0 enters with a minus", corrected=True),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """One network per number of classes; the examples are inputs / ratio."""

    ratio: float = 0.5
    inputs: int = 400
    classes: tuple[int, ...] = (2, 10, 100)
    seed: int = 0


def run(config: Config) -> Findings:
    """Eigenvalues of H_11 and H_12 against Proposition 2, the second with its sign corrected."""
    data: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    for classes in config.classes:
        for block, values in zip(BLOCKS, _eigenvalues(config, classes), strict=True):
            law = block_law.linear_cross_entropy(config.ratio, classes, block)  # type: ignore[arg-type]
            points = np.geomspace(np.abs(values).min(), np.abs(values).max(), 301)
            per_decade = law.density(np.sign(values[0]) * points) * points * np.log(10)
            data[f"{block} {classes}"] = {"values": values, "points": points, "per_decade": per_decade}
            both = np.concatenate([values, np.nextafter(values, -np.inf)])
            gap = float(np.abs(AtomicMeasure.of(values).cdf(both) - law.cdf(both)).max())
            allowed = 2.2 / np.sqrt(round(config.inputs / config.ratio)) + 1 / config.inputs
            measured[f"{block}-{classes}"] = (gap / allowed, f"{gap:.4f} of {allowed:.4f} allowed")
            if block == "off_diagonal":
                measured[f"negative-{classes}"] = float(values.max())
    return data, measured


def _eigenvalues(config: Config, classes: int) -> list[NDArray[np.float64]]:
    d, n = config.inputs, round(config.inputs / config.ratio)
    generator = Rng(config.seed).child("spectra", classes).numpy()
    x = generator.standard_normal((d, n))
    p = softmax(x.T @ generator.standard_normal((d, classes)) / np.sqrt(d), axis=1)
    own, shared = p[:, 0] * (1 - p[:, 0]), -p[:, 0] * p[:, 1]
    return [np.asarray(np.linalg.eigvalsh((x * g) @ x.T / n), dtype=np.float64) for g in (own, shared)]


def figures(result: Outcome) -> dict[str, Any]:
    """Histograms of the eigenvalues' logarithms with the laws, diagonal blocks above."""
    classes = result.config["classes"]
    figure, axes = new_figure(2, len(classes), width=3.4, height=2.8)
    for row, block in enumerate(BLOCKS):
        for axis, count in zip(axes[row], classes, strict=True):
            part = result.data[f"{block} {count}"]
            logs = np.log10(np.abs(part["values"]))
            heights, edges = np.histogram(logs, bins=40, density=True)
            axis.stairs(heights, 10**edges, fill=True, color=MEASURED, alpha=0.5, label="eigenvalues")
            axis.plot(part["points"], part["per_decade"], color=THEORY, label="law")
            sign = "" if block == "diagonal" else "-"
            axis.set(xscale="log", title=f"C = {count}, {block.replace('_', '-')} block", xlabel=f"{sign}eigenvalue")
            axis.tick_params(axis="x", which="minor", labelbottom=False)
        axes[row, 0].set_ylabel("share per decade")
    axes[0, 0].legend(fontsize=8)
    figure.suptitle(f"Linear model, CE, d / N = {result.config['ratio']:g}: blocks of one network", fontsize=11)
    return {"spectra": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "The limiting spectra of single blocks",
    "beyond Dong et al. 2025 (Proposition 2)",
    quick=Config(),
    default=Config(inputs=1000, classes=COUNTS),
    paper=Config(inputs=2000, classes=COUNTS),
)
