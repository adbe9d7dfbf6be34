"""Theorem 2's u (hidden blocks under MSE) and q (output blocks under CE): simulated beside the limits, as Figure 9 does for h."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...results.claims import Outcome
from ...rmt import block_limits
from ...rng import Rng
from ..recipe import Experiment, Findings
from ._limits import SHRINK, declared, draw, measured, softmax, squared_norm, summary

PARTS = {
    "u": ("Dong et al., Theorem 2, (7), (10), (13)", ("||H_11||²/d under MSE", "||H_12||²/d under MSE"), "C^-1"),
    "q": ("Dong et al., Theorem 2, (8), (11)-(13)", ("||H_vv,11||² under CE", "||H_vv,12||² under CE"), "C^-2"),
}
CLAIMS = tuple(
    replace(one, id=f"{part}-{one.id}")
    for part, (source, names, rate) in PARTS.items()
    for one in declared(source, names, rate)
)


@dataclass(frozen=True)
class Config:
    inputs: int = 300
    examples: int = 300
    hidden: int = 8
    classes: tuple[int, ...] = (2, 5, 10, 20, 50, 100, 200, 500, 1000)
    realisations: int = 200
    seed: int = 0


def run(config: Config) -> Findings:
    """Neither self-averages (V stays random), so only means over realisations are compared."""
    d, n, m = config.inputs, config.examples, config.hidden
    out, smaller = _realise(config, d, n), _realise(config, d // SHRINK, n // SHRINK)
    limits = {
        "u": [block_limits.hidden_mse(d / n, classes, m) for classes in config.classes],
        "q": [block_limits.output_cross_entropy(classes, m) for classes in config.classes],
    }
    data = {part: summary(config.classes, out[part], smaller[part], limits[part]) for part in PARTS}
    found = {f"{part}-{key}": value for part in PARTS for key, value in measured(data[part]).items()}
    return data, found


def _realise(config: Config, d: int, n: int) -> dict[str, NDArray[np.float64]]:
    """(C, realisations, 2) of both; one X serves all C."""
    m = config.hidden
    out = {part: np.empty((len(config.classes), config.realisations, 2)) for part in PARTS}
    for k in range(config.realisations):
        generator = Rng(config.seed).child("theorem2", d, k).numpy()
        x = generator.standard_normal((d, n))
        squared_gram = (x.T @ x) ** 2
        for c, classes in enumerate(config.classes):
            active = np.maximum(x.T @ generator.standard_normal((d, m)) / np.sqrt(d), 0.0)
            v = generator.standard_normal((classes, m)) / np.sqrt(m)
            own = 2 * (v[:, 0] @ v[:, 0]) * (active[:, 0] > 0)
            shared = 2 * (v[:, 0] @ v[:, 1]) * (active[:, 0] > 0) * (active[:, 1] > 0)
            out["u"][c, k] = [squared_norm(squared_gram, weights) / d for weights in (own, shared)]
            p = softmax(active @ v.T)
            blocks = [(active.T * weights) @ active / n for weights in (p[:, 0] * (1 - p[:, 0]), -p[:, 0] * p[:, 1])]
            out["q"][c, k] = [float((block**2).sum()) for block in blocks]
    return out


def figures(outcome: Outcome) -> dict[str, Any]:
    """Realisations, limits at C and limits of many classes, for both."""
    labels = {
        "u": (r"$C^{-2}\,\|H_{11}\|_F^2/d$, MSE", r"$C^{-1}\,\|H_{12}\|_F^2/d$, MSE"),
        "q": (r"$C^2\,\|H_{11}\|_F^2$, CE", r"$C^4\,\|H_{12}\|_F^2$, CE"),
    }
    return {part: draw(replace(outcome, data=outcome.data[part]), labels[part])["dong2025.theorem2"] for part in PARTS}


EXPERIMENT = Experiment(
    name="dong2025.theorem2",
    title="Hidden blocks under MSE and output blocks under CE over the number of classes",
    source="Dong et al., Theorem 2, Propositions 6 and 7",
    quick=Config(120, 120, 8, (2, 30, 300), 100),
    default=Config(classes=(2, 10, 30, 100, 300), realisations=400),
    paper=Config(),
    run=run,
    claims=CLAIMS,
    figures=figures,
    chosen="sizes and realisations of Figure 9; the paper draws h alone.",
)
