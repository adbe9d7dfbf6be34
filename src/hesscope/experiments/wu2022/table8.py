"""Table 8: the top eigenspace of E[M] from weights alone, as printed and with activation frequencies."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from ...kron import decouple_layers, predicted_output_eigenspace, subspace_overlap
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ._trained import Setting, Trained, trained, untrained

SOURCE = "Wu et al., Table 8, Section G.1"


@dataclass(frozen=True)
class Config(Setting):
    random_epochs: int = 60


def run(config: Config) -> Outcome:
    """Fully connected and LeNet5 networks, true and random labels, and one at initialisation."""
    lenet = replace(config, network="lenet5")
    cases = {
        "dense, initialisation": untrained(config),
        "dense, true labels": trained(config),
        "dense, random labels": trained(replace(config, random_labels=True, epochs=config.random_epochs)),
        "LeNet5, true labels": trained(lenet),
    }
    data = {name: _overlaps(models) for name, models in cases.items()}
    return Outcome("wu2022.table8", asdict(config), data, tuple(_claims(data)))


def _overlaps(models: Trained) -> dict[str, Any]:
    problem = models.problem()
    layers = [name for name, _ in models.models[0].named_children() if name.startswith("fc")]
    decoupled = decouple_layers(problem, layers)
    space = models.examples.classes - 1
    corrected, printed = [], []
    for name in layers:
        top = torch.linalg.eigh(decoupled[name].output_hessian)[1][:, -space:]
        predicted = predicted_output_eigenspace(problem, name)
        corrected.append(subspace_overlap(predicted.corrected, top))
        printed.append(subspace_overlap(predicted.printed, top))
    return {"layers": np.array(layers), "corrected": np.array(corrected), "printed": np.array(printed)}


def _claims(data: dict[str, Any]) -> list[Claim]:
    trained_ones = [found for name, found in data.items() if "true" in name]
    corrected = np.concatenate([found["corrected"] for found in trained_ones])
    printed = np.concatenate([found["printed"] for found in trained_ones])
    every = np.concatenate([found["corrected"] - found["printed"] for found in data.values()])
    last = min(float(found["corrected"][-1]) for found in data.values())
    random = data["dense, random labels"]["corrected"]
    return [
        Claim(
            "True labels: weights and activation frequencies give the top c - 1 eigenspace of every output Hessian.",
            SOURCE + ", corrected",
            "overlap >= 0.7 in every layer",
            ", ".join(f"{value:.3f}" for value in corrected),
            bool(corrected.min() >= 0.7),
        ),
        Claim(
            "Activation frequencies in place of 1/2 improve the printed closed form on average over all layers and cases.",
            SOURCE + ", corrected",
            "mean improvement > 0",
            f"{every.mean():+.3f} (true labels: {corrected.mean():.3f} against {printed.mean():.3f})",
            bool(every.mean() > 0),
        ),
        Claim(
            "In the last layer the eigenspace is the complement of the all-one vector.",
            SOURCE,
            "overlap >= 0.98",
            f"smallest {last:.4f}",
            last >= 0.98,
        ),
        Claim(
            "Random labels: the first layer's eigenspace is predicted less well than with true labels.",
            SOURCE,
            "below the first layer with true labels",
            f"{random[0]:.3f} < {trained_ones[0]['corrected'][0]:.3f}",
            bool(random[0] < trained_ones[0]["corrected"][0]),
        ),
    ]


def figures(outcome: Outcome) -> dict[str, Any]:
    """Both closed forms for every network and layer."""
    groups = [f"{name.replace('labels', '')}: {layer}" for name, d in outcome.data.items() for layer in d["layers"]]
    values = {key: np.concatenate([found[key] for found in outcome.data.values()]) for key in ("corrected", "printed")}
    return {"overlap": plots.bars(groups, values, "overlap with the top eigenspace of E[M]")}


EXPERIMENT = Experiment(
    name="wu2022.table8",
    title="Closed-form eigenspaces of output Hessians",
    source="Wu et al., Table 8",
    quick=Config(width=48, epochs=20, examples=800),
    paper=Config(data="mnist", examples=20000, width=600, depth=3, epochs=20, rate=0.05),
    run=run,
    figures=figures,
)
