"""Figures 29 and 30: logit gradients cluster by logit at initialisation; at a minimum the classes matter too."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from ...kron import logit_gradients, predicted_output_eigenspace
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ...rng import Rng
from ._trained import Setting, trained, untrained

SOURCE = "Wu et al., Figures 29 and 30, Section G.5"


@dataclass(frozen=True)
class Config(Setting):
    layer: str = "fc1"


def run(config: Config) -> Outcome:
    """Shares of variance between logits and between classes, of Γ and Δ, before and after training."""
    data: dict[str, Any] = {}
    for name, models in (("initialisation", untrained(config)), ("minimum", trained(config))):
        problem = models.problem()
        found = logit_gradients(problem, config.layer)
        s = predicted_output_eigenspace(problem, config.layer).logit_map
        centres = found.gamma.mean(0)
        predicted = (s - s.mean(0)).to(centres)
        data[name] = {
            "gamma": found.clustering("gamma"),
            "delta": found.clustering("delta"),
            "explained": found.explained(),
            "centres": float(torch.nn.functional.cosine_similarity(centres, predicted, dim=1).mean()),
            "gamma points": found.embedding("gamma", Rng(config.seed)),
            "delta points": found.embedding("delta", Rng(config.seed)),
        }
    return Outcome("wu2022.fig29", asdict(config), data, tuple(_claims(data)))


def _claims(data: dict[str, Any]) -> list[Claim]:
    start, end = data["initialisation"], data["minimum"]
    return [
        Claim(
            "At initialisation logit gradients cluster by logit, not by class.",
            SOURCE,
            "at least half of the variance of Γ and Δ lies between logits, ten times as much as between classes",
            f"Γ: {start['gamma'][0]:.2f} by logit, {start['gamma'][1]:.2f} by class; Δ: {start['delta'][0]:.2f}, "
            f"{start['delta'][1]:.2f}",
            all(by_logit >= max(0.5, 10 * by_class) for by_logit, by_class in (start["gamma"], start["delta"])),
        ),
        Claim(
            "At initialisation the centres are the rows of (I - 11ᵀ/c) S_π, up to scale.",
            "Wu et al., (273), with activation frequencies",
            "mean cosine >= 0.95",
            f"{start['centres']:.3f}",
            start["centres"] >= 0.95,
        ),
        Claim(
            "Training moves the clustering of Γ from logits towards classes.",
            SOURCE,
            "less between logits and more between classes than at initialisation",
            f"{end['gamma'][0]:.2f} and {end['gamma'][1]:.2f}, from {start['gamma'][0]:.2f} and {start['gamma'][1]:.2f}",
            end["gamma"][0] < start["gamma"][0] and end["gamma"][1] > start["gamma"][1],
        ),
        Claim(
            "(271) is not an identity: class means carry only part of tr E[M], the rest is covariance within classes.",
            "Wu et al., (271), corrected",
            "share below 0.9 at the minimum",
            f"{end['explained']:.2f} (at initialisation: {start['explained']:.2f})",
            end["explained"] < 0.9,
        ),
    ]


def figures(outcome: Outcome) -> dict[str, Any]:
    """t-SNE of Γ and Δ before and after training."""
    return {
        name: plots.clusters({"Γ": found["gamma points"], "Δ": found["delta points"]})
        for name, found in outcome.data.items()
    }


EXPERIMENT = Experiment(
    name="wu2022.fig29",
    title="Clustering of logit gradients",
    source="Wu et al., Figures 29 and 30",
    quick=Config(width=48, epochs=30),
    paper=Config(data="mnist", examples=10000, width=200, epochs=30, rate=0.05),
    run=run,
    figures=figures,
)
