"""Figure 26: the Hessian's trace correlates most with squared Frobenius norms."""

from __future__ import annotations

from typing import Any

from ...results.claims import Experiment, Outcome
from ._claims import at_least, at_most, outcome
from ._ensemble import PARAMETRIZATIONS, pearson
from ._two_layer import draw_norm_correlations, norm_correlations
from .fig4 import Config, best_over_layers, studies


def run(config: Config) -> Outcome:
    """The trace by its exact formula, correlated with each squared norm."""
    found = studies(config, PARAMETRIZATIONS)
    tables = {name: norm_correlations(m, m.trace) for name, m in found.items()}
    wide = [i for i, ends in enumerate(config.ends) if ends > 1]
    lead = min(
        float((best_over_layers(t)[1, :, wide] - best_over_layers(t)[[0, 2]][:, :, wide].max(axis=0).T).min())
        for t in tables.values()
    )
    deviation = max(
        1 - pearson(m.trace[t, i], m.norms["Frobenius"][t, i].sum(axis=0))
        for m in found.values()
        for t in range(2)
        for i in range(len(config.ends))
    )
    return outcome(
        "fig26",
        config,
        {"correlation": tables},
        at_least(
            "Of all squared norms of one weight matrix none correlates clearly better with the trace than the Frobenius one, "
            "before and after training, at every size above 1 (smallest lead)",
            "Figure 26",
            lead,
            -0.05,
        ),
        at_most(
            "Exactly, tr H = tr(Σ)|W2|² + K|W1 Σ^½|² at any residual; for nearly white inputs the sum of both squared "
            "Frobenius norms says it all (largest 1 − r)",
            "D.4, corrected",
            float(deviation),
            0.05,
        ),
    )


def figures(result: Outcome) -> dict[str, Any]:
    """Correlation against input size, by norm and layer."""
    return {"fig26": draw_norm_correlations(result.data["correlation"], result.config["ends"], "trace")}


EXPERIMENT = Experiment(
    name="cracking.fig26",
    title="Trace against squared spectral, Frobenius and nuclear norms",
    source="Cracking the Hessian, Figure 26",
    quick=Config(),
    paper=Config(width=100, ends=(1, 2, 5, 10, 20, 50, 100), networks=200, steps=4000),
    run=run,
    figures=figures,
)
