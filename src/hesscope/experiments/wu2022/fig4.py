"""Figures 1 and 4: top eigenspaces of independently trained models overlap, in a way the factors predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import sem

from ...kron import ModelOverlap, model_overlap
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Measured, at_least, between, less, more, standard_errors
from ..recipe import Findings, experiment
from ._fits import as_data, fit_of, results, where_trained, with_fits
from ._overlaps import arrays, beyond_chance, starts_high
from ._trained import MNIST, START, Setting, trained

SOURCE = "Wu et al., Figure 4, Theorem G.1"
CLAIMS = (
    *(
        one
        for layer in ("fc1", "fc2")
        for one in (
            at_least(f"{layer}-chance", SOURCE, f"{layer}: at k = m the top eigenspaces of independent models overlap beyond chance, in "
                     "standard errors over pairs", 4.0, "“surprisingly high overlap”: 4 standard errors above k/(m n)",
                     basis="sampling theory"),
            between(f"{layer}-peak", SOURCE, f"{layer}: the overlap peaks at the output dimension m (place of the largest overlap of all k "
                    "up to 3m, over m)", 0.9, 1.1, "“the overlap peaks at the output dimension m”, to a tenth", printed=1.0, basis="convention"),
            between(f"{layer}-reach", "Wu et al., Section G.3.3", f"{layer}: it peaks where the premise τ_k γ₁ > τ₁ γ₂ ends (place over that "
                    "k)", 0.9, 1.1, "“predict the condition can be satisfied up to which dimension”, to a tenth", corrected=True, basis="convention"),
            less(f"{layer}-after", "Wu et al., Section G.3.1", f"{layer}: it falls after m (overlap at 2m over that at m)", 1,
                 "“decreasing overlap after output dimension”"),
            standard_errors(f"{layer}-linear", "Wu et al., Theorem G.1", f"{layer}: up to where the premise reaches it grows as "
                            "(k/m)(t₁·t₂)² (deviation there, over pairs)"),
        )
    ),
    more("last-constant", "Wu et al., Section G.3.2, Figure 22", "Output layer: units cannot be permuted, so the overlap does not start at "
         "1/m (mean over k <= m/2 over that at k = m)", 0.5, "“will stay high before dimension m”, “around a constant”", basis="convention"),
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    models: int = 5
    k: int = 40
    layers: tuple[str, ...] = ("fc1", "fc2")
    last: str = "fc2"


def run(config: Config) -> Findings:
    """Overlap of every pair of models, against the linear law and its reach."""
    found = trained(config, config.models)
    problems = [found.problem(i) for i in range(config.models)]
    data: dict[str, Any] = {}
    measured: dict[str, Measured] = {}
    for layer in config.layers:
        overlap = model_overlap(problems, layer, k=config.k)
        data[layer] = arrays(overlap) | {"factors": overlap.factors, "reach": np.array(overlap.reach)}
        measured |= {"last-constant": starts_high(overlap)} if layer == config.last else _hidden_layer(overlap)
    fit = fit_of(found)
    return data | as_data({config.network: fit}), where_trained(measured, fit)


def _hidden_layer(overlap: ModelOverlap) -> dict[str, Measured]:
    m, reach, mean, layer = overlap.outputs, max(1, min(overlap.reach)), overlap.mean, overlap.layer
    peak = 1 + int(mean[: 3 * m].argmax())
    there = overlap.measured[:, reach - 1] - overlap.linear[:, reach - 1]
    found: dict[str, Measured] = {
        f"{layer}-chance": beyond_chance(overlap),
        f"{layer}-peak": (peak / m, f"k = {peak}, m = {m}") if len(mean) > 1.2 * m else "k does not reach beyond m",
        f"{layer}-reach": (peak / reach, f"k = {peak}, premise up to {reach}"),
        f"{layer}-linear": float(abs(there.mean()) / sem(there)),
    }
    if len(mean) >= 2 * m:
        found[f"{layer}-after"] = float(mean[2 * m - 1] / mean[m - 1])
    return found


def figures(outcome: Outcome) -> dict[str, Any]:
    """One panel per layer."""
    return with_fits({"overlap": plots.model_overlaps(results(outcome))}, outcome)


EXPERIMENT = experiment(
    __name__,
    "Overlap of the top eigenspaces of independently trained models",
    "Wu et al., Figures 1 and 4",
    quick=Config(width=8, depth=1, epochs=40, k=30),
    default=Config(**MNIST, width=50, depth=2, models=4, k=110, layers=("fc1", "fc2", "fc3"), last="fc3"),
    paper=Config(
        data="mnist", width=200, depth=2, epochs=1000, rate=0.01, k=600, layers=("fc1", "fc2", "fc3"), last="fc3"
    ),
    chosen=f"F-200² on MNIST; the paper does not name the networks of its Figure 4. {START}",
)
