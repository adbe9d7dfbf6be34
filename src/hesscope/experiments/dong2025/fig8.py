"""Figure 8: block norms of a linear model under cross-entropy concentrate, and their ratio falls like 1/C²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from ...measure import Array
from ...results.claims import Outcome
from ...rmt import block_limits
from ..declared import Declared
from ..recipe import Experiment, Findings
from ._limits import declared, draw, measured, realised, squared_norm, summary

SOURCE = "Dong et al., Figure 8, Theorem 1"
CLAIMS = (
    *declared(SOURCE, ("||H_11||²/d", "||H_12||²/d"), "C^-2"),
    Declared(
        "concentration", SOURCE, "The realisations concentrate: four times the size halves the relative spread of ||H_11||²/d or "
        "more (quotient of spreads, minus 4 standard errors of it)", "<=", 0.5,
        "“concentrate around the red curves”: averages over N examples scatter as 1/√N or less", "sampling theory",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    inputs: int = 1000
    examples: int = 1000
    classes: tuple[int, ...] = (2, 5, 10, 20, 50, 100, 200, 500, 1000)
    realisations: int = 1000
    seed: int = 0


def run(config: Config) -> Findings:
    """Realisations at full size beside the limits, and at a quarter of it for the rate of concentration."""
    (out,), (smaller,) = realised("fig8", config, _norms)
    ratio = config.inputs / config.examples
    limits = [block_limits.linear_cross_entropy(ratio, classes) for classes in config.classes]
    data = summary(config.classes, out, smaller, limits)
    spread, wider = (float(np.mean(x[:, :, 0].std(1) / x[:, :, 0].mean(1))) for x in (out, smaller))
    quotient = spread / wider
    error = quotient / np.sqrt(config.realisations)  # of two standard deviations: each 1/√(2n), relatively
    return data, measured(data) | {"concentration": (quotient - 4 * error, f"{quotient:.3f} ± {error:.3f}")}


def _norms(generator: np.random.Generator, x: Array, squared_gram: Array, classes: int) -> list[list[float]]:
    d = len(x)
    p = softmax(x.T @ generator.standard_normal((d, classes)) / np.sqrt(d), axis=1)
    return [[squared_norm(squared_gram, weights) / d for weights in (p[:, 0] * (1 - p[:, 0]), p[:, 0] * p[:, 1])]]


def figures(outcome: Outcome) -> dict[str, Any]:
    """Realisations, limits at C and limits of many classes."""
    return draw(outcome, (r"$C^2\,\|H_{11}\|_F^2/d$", r"$C^4\,\|H_{12}\|_F^2/d$"))


EXPERIMENT = Experiment.of(
    __name__,
    "Block norms of a linear model over the number of classes",
    "Dong et al., Figure 8",
    quick=Config(240, 240, (2, 10, 30, 100, 300), 200),
    default=Config(400, 400, (2, 5, 10, 20, 50, 100, 200, 500), 400),
    paper=Config(),
    chosen="the numbers of classes; limits by quadrature in place of 10⁶ draws.",
)
