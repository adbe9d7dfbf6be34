"""Figure 9: hidden-layer block norms of a one-hidden-layer network under cross-entropy; their ratio falls like 1/C."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

from ...measure import Array
from ...results.claims import Outcome
from ...rmt import block_limits
from ..recipe import Experiment, Findings
from ._limits import declared, draw, hidden_layer, measured, realised, squared_norm, summary

CLAIMS = declared("Dong et al., Figure 9, Theorem 2", ("||H_11||²/d", "||H_12||²/d"), "C^-1")


@dataclass(frozen=True)
class Config:
    inputs: int = 300
    examples: int = 300
    hidden: int = 8
    classes: tuple[int, ...] = (2, 5, 10, 20, 50, 100, 200, 500, 1000)
    realisations: int = 200
    seed: int = 0


def run(config: Config) -> Findings:
    """The off-diagonal norms do not concentrate (V stays random), so only means over realisations are compared."""
    (out,), (smaller,) = realised("fig9", config, partial(_norms, config.hidden))
    ratio = config.inputs / config.examples
    limits = [block_limits.hidden_cross_entropy(ratio, classes, config.hidden) for classes in config.classes]
    data = summary(config.classes, out, smaller, limits)
    return data, measured(data)


def _norms(hidden: int, generator: np.random.Generator, x: Array, squared_gram: Array, classes: int) -> Any:
    active, v = hidden_layer(generator, x, hidden, classes)
    p = softmax(active @ v.T, axis=1)
    first, second = p @ v[:, 0], p @ v[:, 1]
    own = (active[:, 0] > 0) * (p @ v[:, 0] ** 2 - first**2)
    shared = (active[:, 0] > 0) * (active[:, 1] > 0) * (p @ (v[:, 0] * v[:, 1]) - first * second)
    return [[squared_norm(squared_gram, weights) / len(x) for weights in (own, shared)]]


def figures(outcome: Outcome) -> dict[str, Any]:
    """Realisations, limits at C and limits of many classes."""
    return draw(outcome, (r"$\|H_{11}\|_F^2/d$", r"$C\,\|H_{12}\|_F^2/d$"))


EXPERIMENT = Experiment.of(
    __name__,
    "Hidden-layer block norms over the number of classes",
    "Dong et al., Figure 9",
    quick=Config(240, 240, 8, (2, 30, 300), 200),
    default=Config(realisations=1000, classes=(2, 10, 30, 100, 300)),
    paper=Config(),
    chosen="8 hidden neurons and the numbers of classes; limits by quadrature.",
)
