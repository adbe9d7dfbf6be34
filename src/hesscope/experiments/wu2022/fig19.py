"""Figures 19 and 20: both factors along training, and the error of the conjecture with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ...curvature import Problem
from ...kron import Decoupling, decouple_layers
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Measured, at_most, more
from ..recipe import Experiment, Findings
from ._trained import CIFAR, Setting, examples, trained

SOURCE = "Wu et al., Figures 19 and 20, Section F.4"
CLAIMS = tuple(
    one
    for layer in ("fc1", "fc2", "fc3")
    for one in (
        more(f"{layer}-rank-one", "Wu et al., Figure 19", f"{layer}: E[x xᵀ] is approximately of rank one all along training (smallest share "
             "of the first eigenvalue in the trace)", 0.5, "“always approximately rank 1”: the first is more than all others together", basis="convention"),
        more(f"{layer}-c-large", "Wu et al., Figure 20", f"{layer}: E[M] has around c large eigenvalues all along training (smallest share of "
             "the first c in the trace)", 0.5, "“always have around c large eigenvalues”: they are more than all others together", basis="convention"),
        at_most(f"{layer}-initial", "Wu et al., Section 7", f"{layer}: the decoupling is most accurate at initialisation, where it is proved "
                "(relative spectral error there over the smallest)", 1.0, "“our theory only applies to the initialization”"),
        more(f"{layer}-overlap", SOURCE, f"{layer}: the top c - 1 eigenspaces of the exact and the decoupled Hessian keep agreeing (smallest "
             "overlap)", 0.5, "“works reasonably well on the top eigenspace”: for most of it", basis="convention"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    layers: tuple[str, ...] = ("fc1", "fc2", "fc3")
    hidden: tuple[str, ...] = ("fc2", "fc3")  # layers behind a ReLU, whose inputs have a mean
    looks: int = 6
    k: int = 15


def run(config: Config) -> Findings:
    """Eigenvalues of E[x xᵀ] and E[M], spectral and Frobenius error and overlap, per layer at several epochs."""
    data = examples(config)
    some = data.first(config.measured_on)
    epochs = np.unique(np.linspace(0, config.epochs, config.looks).round().astype(int))
    space = data.classes - 1
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in config.layers}
    losses = []

    def look(epoch: int, models: list[nn.Module]) -> None:
        if epoch in epochs:
            problem = Problem.of(models[0].eval(), "cross_entropy", (some.x, some.y))
            losses.append(problem.loss_value())
            for name, d in decouple_layers(problem, config.layers).items():
                rows[name].append(_measure(d, space, config.k))

    trained(config, watch=look)
    found: dict[str, Any] = {
        name: {key: np.array([row[key] for row in looks]) for key in looks[0]} for name, looks in rows.items()
    }
    measured: dict[str, Measured] = {}
    for name in config.layers:
        part = found[name]
        if name in config.hidden:
            measured[f"{name}-rank-one"] = float(part["first"].min())
        measured |= {
            f"{name}-c-large": float(part["share"].min()),
            f"{name}-initial": float(part["spectral"][0] / part["spectral"].min()),
            f"{name}-overlap": float(part["overlap"].min()),
        }
    found |= {"epochs": epochs, "loss": np.array(losses)}
    return found, measured


def _measure(d: Decoupling, space: int, k: int) -> dict[str, Any]:
    found = d.compare(space)
    tau = torch.linalg.eigvalsh(d.output_hessian).flip(0)
    gamma = torch.linalg.eigvalsh(d.input_autocorrelation).flip(0)
    return {
        "inputs": gamma[:k].numpy(),
        "first": float(gamma[0] / gamma.sum()),
        "outputs": tau[:k].numpy(),
        "share": float(tau[: space + 1].sum() / tau.sum()),
        "spectral": found.spectral_error,
        "frobenius": found.frobenius_error,
        "overlap": float(found.overlap[-1]),
    }


def figures(outcome: Outcome) -> dict[str, Any]:
    """Top eigenvalues of a hidden layer over epochs, and the errors of every layer."""
    layers, epochs = outcome.config["layers"], outcome.data["epochs"]
    shown = outcome.config["hidden"][0]
    found = outcome.data[shown]
    inputs = {f"$\\lambda_{{{i + 1}}}$": found["inputs"][:, i] for i in range(4)}
    places = (0, 4, 8, 9, 14)
    outputs = {f"$\\tau_{{{i + 1}}}$": found["outputs"][:, i] for i in places if i < found["outputs"].shape[1]}
    kinds = {"spectral": "relative spectral error", "frobenius": "relative Frobenius error", "overlap": "overlap"}
    panels = {title: {name: outcome.data[name][kind] for name in layers} for kind, title in kinds.items()}
    return {
        "eigenvalues": plots.curves(
            {f"{shown}: E[xxᵀ]": inputs, f"{shown}: E[M]": outputs}, "epoch", "eigenvalue", log=True, x=epochs
        ),
        "errors": plots.curves(panels, "epoch", "", x=epochs),
    }


EXPERIMENT = Experiment.of(
    __name__,
    "Both factors and the error of the conjecture along training",
    "Wu et al., Figures 19 and 20",
    quick=Config(width=40, examples=600, epochs=40, looks=3),
    default=Config(**CIFAR, network="lenet5", hidden=("fc1", "fc2", "fc3"), looks=4),
    paper=Config(data="cifar10", network="lenet5", hidden=("fc1", "fc2", "fc3"), epochs=1000, rate=0.01, looks=11),
    chosen="10,000 of the 50,000 images of CIFAR-10 are at hand; eleven looks.",
)
