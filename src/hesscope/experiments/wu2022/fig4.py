"""Figures 1 and 4: top eigenspaces of independently trained models overlap, in a way the factors predict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...kron import ModelOverlap, model_overlap
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ._trained import Setting, trained

SOURCE = "Wu et al., Figure 4, Theorem G.1"


@dataclass(frozen=True)
class Config(Setting):
    models: int = 5
    k: int = 40
    layers: tuple[str, ...] = ("fc1", "fc2")
    last: str = "fc2"


def run(config: Config) -> Outcome:
    """Overlap of every pair of models, against the linear law and its reach."""
    found = trained(config, config.models)
    problems = [found.problem(i) for i in range(config.models)]
    data: dict[str, Any] = {}
    claims: list[Claim] = []
    for layer in config.layers:
        overlap = model_overlap(problems, layer, k=config.k)
        data[layer] = {
            "outputs": overlap.outputs,
            "measured": overlap.measured,
            "permuted": overlap.permuted,
            "linear": overlap.linear,
            "factors": overlap.factors,
            "reach": np.array(overlap.reach),
        }
        claims += _last_layer(overlap) if layer == config.last else _hidden_layer(overlap)
    return Outcome("wu2022.fig4", asdict(config), data, tuple(claims))


def _hidden_layer(overlap: ModelOverlap) -> list[Claim]:
    m, reach = overlap.outputs, min(overlap.reach)
    mean, linear, permuted = overlap.mean, overlap.linear.mean(0), overlap.permuted.mean(0)
    chance = np.arange(1, len(mean) + 1) / (m * _inputs(overlap))
    start = max(1, reach)
    quotient = float(permuted[:start].sum() / linear[:start].sum())
    top = start + int(mean[start - 1 : m + 1].argmax())
    after = float(mean[top - 1] - mean[top - 1 : 2 * m].min())
    return [
        Claim(
            f"{overlap.layer}: top eigenspaces of independent models overlap far beyond chance.",
            SOURCE,
            f"at the peak, at least 5 times chance ({chance[top - 1]:.4f})",
            f"{mean[top - 1]:.3f} at k = {top}",
            bool(mean[top - 1] >= 5 * chance[top - 1]),
        ),
        Claim(
            f"{overlap.layer}: up to the reach of its premise, the overlap (expected over permuted units) grows as "
            "(k/m)(t₁·t₂)².",
            "Wu et al., Theorem G.1, in expectation",
            "quotient to the law between 0.75 and 1.25",
            f"{quotient:.2f} up to k = {start}",
            0.75 <= quotient <= 1.25,
        ),
        Claim(
            f"{overlap.layer}: the overlap peaks where the premise τ_k γ₁ > τ₁ γ₂ ends (k = {reach}), at the latest at "
            f"m = {m}, and falls after it.",
            "Wu et al., Figure 4 and Section G.3.3, corrected",
            "a peak between that k and m + 1, followed by a fall",
            f"peak at k = {top}, then down by {after:.3f}",
            start <= top <= m + 1 and after > 0,
        ),
    ]


def _last_layer(overlap: ModelOverlap) -> list[Claim]:
    mean, m = overlap.mean, overlap.outputs
    law = overlap.linear.mean(0)
    return [
        Claim(
            f"{overlap.layer}, the output layer: units cannot be permuted, so the overlap starts high instead of at 1/m.",
            "Wu et al., Section G.3.2",
            "mean over k < m/2 at least twice the linear law",
            f"{mean[: m // 2].mean():.3f} against {law[: m // 2].mean():.3f}",
            bool(mean[: m // 2].mean() >= 2 * law[: m // 2].mean()),
        )
    ]


def _inputs(overlap: ModelOverlap) -> int:
    return max(1, overlap.size // overlap.outputs)


def figures(outcome: Outcome) -> dict[str, Any]:
    """One panel per layer."""
    return {"overlap": plots.model_overlaps(outcome.data)}


EXPERIMENT = Experiment(
    name="wu2022.fig4",
    title="Overlap of the top eigenspaces of independently trained models",
    source="Wu et al., Figures 1 and 4",
    quick=Config(width=8, depth=1, epochs=40, k=30),
    paper=Config(
        data="mnist", examples=10000, width=30, depth=2, epochs=20, k=80, layers=("fc1", "fc2", "fc3"), last="fc3"
    ),
    run=run,
    figures=figures,
)
