"""Figure 9: hidden-layer block norms of a one-hidden-layer network under cross-entropy; their ratio falls like 1/C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...results.claims import Outcome
from ...rmt import block_limits
from ...rng import Rng
from ..recipe import Experiment, Findings
from ._limits import SHRINK, declared, draw, measured, softmax, squared_norm, summary

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
    d, n = config.inputs, config.examples
    out, smaller = _realise(config, d, n), _realise(config, d // SHRINK, n // SHRINK)
    limits = [block_limits.hidden_cross_entropy(d / n, classes, config.hidden) for classes in config.classes]
    data = summary(config.classes, out, smaller, limits)
    return data, measured(data)


def _realise(config: Config, d: int, n: int) -> NDArray[np.float64]:
    """(C, realisations, 2); one X serves all C."""
    m = config.hidden
    out = np.empty((len(config.classes), config.realisations, 2))
    for k in range(config.realisations):
        generator = Rng(config.seed).child("fig9", d, k).numpy()
        x = generator.standard_normal((d, n))
        squared_gram = (x.T @ x) ** 2
        for c, classes in enumerate(config.classes):
            active = np.maximum(x.T @ generator.standard_normal((d, m)) / np.sqrt(d), 0.0)
            v = generator.standard_normal((classes, m)) / np.sqrt(m)
            p = softmax(active @ v.T)
            first, second = p @ v[:, 0], p @ v[:, 1]
            own = (active[:, 0] > 0) * (p @ v[:, 0] ** 2 - first**2)
            shared = (active[:, 0] > 0) * (active[:, 1] > 0) * (p @ (v[:, 0] * v[:, 1]) - first * second)
            out[c, k] = squared_norm(squared_gram, own) / d, squared_norm(squared_gram, shared) / d
    return out


def figures(outcome: Outcome) -> dict[str, Any]:
    """Realisations, limits at C and limits of many classes."""
    return draw(outcome, (r"$\|H_{11}\|_F^2/d$", r"$C\,\|H_{12}\|_F^2/d$"))


EXPERIMENT = Experiment(
    name="dong2025.fig9",
    title="Hidden-layer block norms over the number of classes",
    source="Dong et al., Figure 9",
    quick=Config(240, 240, 8, (2, 30, 300), 200),
    default=Config(realisations=1000, classes=(2, 10, 30, 100, 300)),
    paper=Config(),
    run=run,
    claims=CLAIMS,
    figures=figures,
    chosen="8 hidden neurons and the numbers of classes; limits by quadrature.",
)
