"""Theorem 2's u (hidden blocks under MSE) and q (output blocks under CE): simulated beside the limits, as Figure 9 does for h."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

from ...measure import Array
from ...results.claims import Outcome
from ...rmt import block_limits
from ..recipe import Experiment, Findings
from ._limits import declared, draw, hidden_layer, measured, realised, squared_norm, summary
from .fig9 import Config

PARTS = {
    "u": ("Dong et al., Theorem 2, (7), (10), (13)", ("||H_11||²/d under MSE", "||H_12||²/d under MSE"), "C^-1"),
    "q": ("Dong et al., Theorem 2, (8), (11)-(13)", ("||H_vv,11||² under CE", "||H_vv,12||² under CE"), "C^-2"),
}
CLAIMS = tuple(
    replace(one, id=f"{part}-{one.id}")
    for part, (source, names, rate) in PARTS.items()
    for one in declared(source, names, rate)
)


def run(config: Config) -> Findings:
    """Neither self-averages (V stays random), so only means over realisations are compared."""
    ratio, m = config.inputs / config.examples, config.hidden
    found = realised("theorem2", config, partial(_norms, m))
    limits = {
        "u": [block_limits.hidden_mse(ratio, classes, m) for classes in config.classes],
        "q": [block_limits.output_cross_entropy(classes, m) for classes in config.classes],
    }
    data = {
        part: summary(config.classes, out, smaller, limits[part])
        for part, out, smaller in zip(PARTS, *found, strict=True)
    }
    return data, {f"{part}-{key}": value for part in PARTS for key, value in measured(data[part]).items()}


def _norms(hidden: int, generator: np.random.Generator, x: Array, squared_gram: Array, classes: int) -> Any:
    """Of u, then of q."""
    active, v = hidden_layer(generator, x, hidden, classes)
    own = 2 * (v[:, 0] @ v[:, 0]) * (active[:, 0] > 0)
    shared = 2 * (v[:, 0] @ v[:, 1]) * (active[:, 0] > 0) * (active[:, 1] > 0)
    p = softmax(active @ v.T, axis=1)
    weights = (p[:, 0] * (1 - p[:, 0]), -p[:, 0] * p[:, 1])
    blocks = [(active.T * weight) @ active / len(active) for weight in weights]
    return (
        [squared_norm(squared_gram, weight) / len(x) for weight in (own, shared)],
        [float((block**2).sum()) for block in blocks],
    )


def figures(outcome: Outcome) -> dict[str, Any]:
    """Realisations, limits at C and limits of many classes, for both."""
    labels = {
        "u": (r"$C^{-2}\,\|H_{11}\|_F^2/d$, MSE", r"$C^{-1}\,\|H_{12}\|_F^2/d$, MSE"),
        "q": (r"$C^2\,\|H_{11}\|_F^2$, CE", r"$C^4\,\|H_{12}\|_F^2$, CE"),
    }
    return {part: draw(replace(outcome, data=outcome.data[part]), labels[part])["dong2025.theorem2"] for part in PARTS}


EXPERIMENT = Experiment.of(
    __name__,
    "Hidden blocks under MSE and output blocks under CE over the number of classes",
    "Dong et al., Theorem 2, Propositions 6 and 7",
    quick=Config(120, 120, 8, (2, 30, 300), 100),
    default=Config(classes=(2, 10, 30, 100, 300), realisations=400),
    paper=Config(),
    chosen="sizes and realisations of Figure 9; the paper draws h alone.",
)
