"""Figure 4: the sharpness of two-layer linear networks correlates most with squared spectral norms (SP, muP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...results.claims import Experiment, Outcome
from ._claims import at_least, at_most, outcome
from ._two_layer import NORMS, Measured, Study, draw_norm_correlations, measure, norm_correlations

PARAMETRIZATIONS = ("SP", "muP")


@dataclass(frozen=True)
class Config:
    """Width of the hidden layer, input and output sizes, networks for each point, samples, descent steps."""

    width: int = 30
    ends: tuple[int, ...] = (1, 3, 8)
    networks: int = 60
    samples: int = 1024
    steps: int = 200
    seed: int = 0


def studies(config: Config, parametrizations: tuple[str, ...]) -> dict[str, Measured]:
    """The networks of each parametrization, initial and trained."""
    c = config
    return {p: measure(Study(p, c.width, c.ends, c.networks, c.samples, c.steps, c.seed)) for p in parametrizations}


def best_over_layers(table: Any) -> Any:
    """The larger |r| of the two layers: (norm, moment, size)."""
    return np.abs(table).max(axis=-1)


def run(config: Config) -> Outcome:
    """Train, then correlate."""
    found = studies(config, PARAMETRIZATIONS)
    tables = {name: norm_correlations(m, m.sharpness) for name, m in found.items()}
    wide = [i for i, ends in enumerate(config.ends) if ends > 1]
    lead = [
        best_over_layers(table)[0, 1, i] - best_over_layers(table)[1:, 1, i].max()
        for table in tables.values()
        for i in wide
    ]
    rule = max(float(np.abs(m.fitted_rule / m.sharpness[1] - 1).max()) for m in found.values())
    larger = [
        np.argmax(np.abs(table[0, 1, i])) == np.argmax(found[name].norms["spectral"][1, i].std(axis=-1))
        for name, table in tables.items()
        for i in range(len(config.ends))
    ]
    return outcome(
        "fig4",
        config,
        {"correlation": tables, "progress": {name: m.progress for name, m in found.items()}},
        at_least(
            "At the end of training, of all squared norms of one weight matrix the spectral one correlates most with the "
            "sharpness, at every size above 1 (smallest lead over Frobenius and nuclear)",
            "Figure 4",
            float(min(lead)),
            0.0,
        ),
        at_most(
            "Why: a fitted linear network has sharpness exactly λ_max(Σ^½ (|W2|² I + W1ᵀ W1) Σ^½), which is the sum of the "
            "squared spectral norms for white inputs, not their maximum as the paper's block-diagonal argument says "
            "(largest relative error)",
            "D.3.3, sharpened",
            rule,
            0.02,
        ),
        at_least(
            "Which matrix drives the correlation: the one whose squared spectral norm varies more between networks (share "
            "of points)",
            "Figure 4, explained",
            float(np.mean(larger)),
            1.0,
        ),
        at_most("All networks are fitted (worst final over initial excess loss)", "D.1.3", _worst(found), 1e-3),
    )


def _worst(found: dict[str, Measured]) -> float:
    return float(max(m.progress.max() for m in found.values()))


def figures(result: Outcome) -> dict[str, Any]:
    """Correlation against input size, by norm and layer."""
    tables = result.data["correlation"]
    return {"fig4": draw_norm_correlations(tables, result.config["ends"], "sharpness")}


EXPERIMENT = Experiment(
    name="cracking.fig4",
    title=f"Sharpness against squared {', '.join(NORMS)} norms",
    source="Cracking the Hessian, Figure 4",
    quick=Config(),
    paper=Config(width=100, ends=(1, 2, 5, 10, 20, 50, 100), networks=200, steps=4000),
    run=run,
    figures=figures,
)
