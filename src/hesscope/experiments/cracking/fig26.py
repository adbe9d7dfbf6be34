"""Figure 26: the Hessian's trace correlates most with squared Frobenius norms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...measure import Array
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import equal, less, more
from ..recipe import Findings, experiment
from . import PAPER
from ._decided import UNDECIDED, decided, taken
from ._ensemble import PARAMETRIZATIONS, pearson
from ._two_layer import MOMENTS, Measured, draw_norm_correlations, norm_correlations
from .fig4 import EXPERIMENT as EXPERIMENT_4
from .fig4 import Config, best_over_layers, studies

CLAIMS = (
    *(
        more(f"lead-{name}-{moment}", f"{PAPER}, Figure 26", f"{name}, {moment}: of all squared norms of one weight matrix the "
             "Frobenius one correlates most with the trace, at every size above 1 (smallest lead of r)", 0,
             f"“it is indeed the squared Frobenius norm that correlates the most”{UNDECIDED}")
        for name in PARAMETRIZATIONS
        for moment in MOMENTS
    ),
    equal("formula", f"{PAPER}, D.4", "tr H by double backward is tr(Σ)|W2|² + K|W1 Σ^½|², before and after training (largest relative gap, "
          "first network of each size)", corrected=True),
    less("both", f"{PAPER}, D.4", "tr H = tr(Σ)|W2|² + K|W1 Σ^½|² exactly: both squared Frobenius norms together say more than "
         "the best norm of one matrix (largest quotient of 1 - r, of the sum over that of the best one)", 1,
         f"the formula of D.4 holds for their sum, not for one of them: r of the sum is the larger{UNDECIDED}", corrected=True),
)  # fmt: skip


def run(config: Config) -> Findings:
    """The trace by its exact formula, correlated with each squared norm."""
    found = studies(config, PARAMETRIZATIONS)
    tables = {name: norm_correlations(m, m.trace) for name, m in found.items()}
    wide = [i for i, ends in enumerate(config.ends) if ends > 1]

    def numbers(index: NDArray[np.int64]) -> dict[str, float]:
        chosen = {name: taken(m, index) for name, m in found.items()}
        return _leads(chosen, wide)

    measured = decided(CLAIMS, numbers, config.networks, Rng(config.seed).child("fig26"))
    return {"correlation": tables}, measured | {"formula": max(float(m.trace_gap.max()) for m in found.values())}


def _leads(found: dict[str, Measured], wide: list[int]) -> dict[str, float]:
    """By claim: the smallest lead of the Frobenius norm over sizes, and what both matrices say over what the best one does."""
    best = {name: best_over_layers(norm_correlations(m, m.trace))[:, :, wide] for name, m in found.items()}
    leads = {
        f"lead-{name}-{moment}": float((r[1, k] - r[[0, 2], k].max(axis=0)).min())
        for name, r in best.items()
        for k, moment in enumerate(MOMENTS)
    }
    quotients = [((1 - _both(m)[:, wide]) / (1 - best[name].max(axis=0))).max() for name, m in found.items()]
    return leads | {"both": float(max(quotients))}


def _both(found: Measured) -> Array:
    """Pearson's r of the trace and the sum of both squared Frobenius norms: (moment, size)."""
    sums = found.norms["Frobenius"].sum(axis=2)
    return np.array([[pearson(t, s) for t, s in zip(*row, strict=True)] for row in zip(found.trace, sums, strict=True)])


def figures(result: Outcome) -> dict[str, Any]:
    """Correlation against input size, by norm and layer."""
    return {"fig26": draw_norm_correlations(result.data["correlation"], result.config["ends"], "trace")}


EXPERIMENT = experiment(
    __name__,
    "Trace against squared spectral, Frobenius and nuclear norms",
    "Cracking the Hessian, Figure 26",
    **EXPERIMENT_4.sizes,
    chosen=EXPERIMENT_4.chosen,
)
