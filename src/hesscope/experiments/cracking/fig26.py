"""Figure 26: the Hessian's trace correlates most with squared Frobenius norms."""

from __future__ import annotations

from typing import Any

from ...results.claims import Outcome
from ..declared import at_most, equal, less, more
from ..recipe import Experiment, Findings
from . import PAPER
from ._ensemble import PARAMETRIZATIONS, pearson
from ._two_layer import MOMENTS, draw_norm_correlations, norm_correlations
from .fig4 import EXPERIMENT as EXPERIMENT_4
from .fig4 import Config, best_over_layers, studies

CLAIMS = (
    *(
        more(f"lead-{name}-{moment}", f"{PAPER}, Figure 26", f"{name}, {moment}: of all squared norms of one weight matrix the "
             "Frobenius one correlates most with the trace, at every size above 1 (smallest lead of r)", 0,
             "“it is indeed the squared Frobenius norm that correlates the most”")
        for name in PARAMETRIZATIONS
        for moment in MOMENTS
    ),
    equal("formula", f"{PAPER}, D.4", "tr H by double backward is tr(Σ)|W2|² + K|W1 Σ^½|², before and after training (largest relative gap, "
          "first network of each size)", corrected=True),
    at_most("white", f"{PAPER}, D.4", "... and D (|W1|² + |W2|²), as printed, but for what the inputs are not white (largest relative gap over "
            "|Σ - I|)", 1.0 + 1e-9, "“≃” under Σ ≃ I: each term is off by |Σ - I| at most, and exactly so with one input"),
    less("both", f"{PAPER}, D.4", "tr H = tr(Σ)|W2|² + K|W1 Σ^½|² exactly: both squared Frobenius norms together say more than "
         "the best norm of one matrix (largest quotient of 1 - r, of the sum over that of the best one)", 1,
         "the formula of D.4 holds for their sum, not for one of them: r of the sum is the larger", corrected=True),
)  # fmt: skip


def run(config: Config) -> Findings:
    """The trace by its exact formula, correlated with each squared norm."""
    found = studies(config, PARAMETRIZATIONS)
    tables = {name: norm_correlations(m, m.trace) for name, m in found.items()}
    wide = [i for i, ends in enumerate(config.ends) if ends > 1]
    lead = {
        f"lead-{name}-{moment}": min(
            float(best_over_layers(t)[1, k, i] - best_over_layers(t)[[0, 2], k, i].max()) for i in wide
        )
        for name, t in tables.items()
        for k, moment in enumerate(MOMENTS)
    }
    both = max(
        (1 - pearson(m.trace[t, i], m.norms["Frobenius"][t, i].sum(axis=0)))
        / (1 - float(best_over_layers(tables[name])[:, t, i].max()))
        for name, m in found.items()
        for t in range(2)
        for i in wide
    )
    return {"correlation": tables}, {
        **lead,
        "both": both,
        "formula": max(float(m.trace_gap.max()) for m in found.values()),
        "white": max(float(m.white_gap.max()) for m in found.values()),
    }


def figures(result: Outcome) -> dict[str, Any]:
    """Correlation against input size, by norm and layer."""
    return {"fig26": draw_norm_correlations(result.data["correlation"], result.config["ends"], "trace")}


EXPERIMENT = Experiment.of(
    __name__,
    "Trace against squared spectral, Frobenius and nuclear norms",
    "Cracking the Hessian, Figure 26",
    **EXPERIMENT_4.sizes,
    chosen="as for cracking.fig4.",
)
