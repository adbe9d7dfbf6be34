"""Figures 19 and 20: both factors along training, and the error of the conjecture with them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ...curvature import Problem
from ...kron import Decoupling, decouple_layers
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ._trained import Setting, examples, trained

SOURCE = "Wu et al., Figures 19 and 20, Section F.4"


@dataclass(frozen=True)
class Config(Setting):
    layers: tuple[str, ...] = ("fc1", "fc2", "fc3")
    hidden: tuple[str, ...] = ("fc2", "fc3")  # layers behind a ReLU, whose inputs have a mean
    looks: int = 6
    k: int = 15


def run(config: Config) -> Outcome:
    """Eigenvalues of E[x xᵀ] and E[M], spectral and Frobenius error and overlap, per layer at several epochs."""
    data = examples(config)
    epochs = np.unique(np.linspace(0, config.epochs, config.looks).round().astype(int))
    space = data.classes - 1
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in config.layers}
    losses = []

    def look(epoch: int, models: list[nn.Module]) -> None:
        if epoch in epochs:
            problem = Problem.of(models[0].eval(), "cross_entropy", (data.x, data.y))
            losses.append(problem.loss_value())
            for name, d in decouple_layers(problem, config.layers).items():
                rows[name].append(_measure(d, space, config.k))

    trained(config, watch=look)
    found: dict[str, Any] = {
        name: {key: np.array([row[key] for row in looks]) for key in looks[0]} for name, looks in rows.items()
    }
    claims = [claim for name in config.layers for claim in _claims(name, found[name], space, name in config.hidden)]
    found |= {"epochs": epochs, "loss": np.array(losses)}
    return Outcome("wu2022.fig19", asdict(config), found, tuple(claims))


def _measure(d: Decoupling, space: int, k: int) -> dict[str, Any]:
    found = d.compare(space)
    tau = torch.linalg.eigvalsh(d.output_hessian).flip(0)
    return {
        "inputs": torch.linalg.eigvalsh(d.input_autocorrelation).flip(0)[:k].numpy(),
        "outputs": tau[:k].numpy(),
        "share": float(tau[:space].sum() / tau.sum()),
        "spectral": found.spectral_error,
        "frobenius": found.frobenius_error,
        "overlap": float(found.overlap[-1]),
    }


def _claims(name: str, found: dict[str, Any], space: int, hidden: bool) -> list[Claim]:
    ratio = found["inputs"][:, 0] / found["inputs"][:, 1]
    share, spectral, overlap = found["share"], found["spectral"], found["overlap"]
    rank_one = Claim(
        f"{name}: E[x xᵀ] is close to rank one all along training.",
        SOURCE,
        "λ₁/λ₂ >= 2 at every look",
        f"{ratio.min():.1f} to {ratio.max():.1f}",
        bool(ratio.min() >= 2),
    )
    return [
        *([rank_one] if hidden else []),
        Claim(
            f"{name}: E[M] has about c large eigenvalues all along training.",
            SOURCE,
            f"the first {space} hold at least half of its trace",
            f"{100 * share.min():.0f} % to {100 * share.max():.0f} %",
            bool(share.min() >= 0.5),
        ),
        Claim(
            f"{name}: the conjecture is most accurate at initialisation, where it is proved, and stays below one in "
            "training.",
            "Wu et al., Section 7, made quantitative",
            "smallest relative spectral error at the first look, all below 1",
            ", ".join(f"{value:.2f}" for value in spectral),
            bool(spectral.argmin() == 0 and spectral.max() < 1),
        ),
        Claim(
            f"{name}: the top c - 1 eigenspaces keep overlapping.",
            SOURCE,
            "overlap >= 0.5 at every look",
            ", ".join(f"{value:.2f}" for value in overlap),
            bool(overlap.min() >= 0.5),
        ),
    ]


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


EXPERIMENT = Experiment(
    name="wu2022.fig19",
    title="Both factors and the error of the conjecture along training",
    source="Wu et al., Figures 19 and 20",
    quick=Config(width=40, examples=600, epochs=40, looks=3),
    paper=Config(
        data="cifar10",
        examples=2000,
        network="lenet5",
        layers=("fc1", "fc2", "fc3"),
        hidden=("fc1", "fc2", "fc3"),
        epochs=40,
        rate=0.02,
        looks=4,
    ),
    run=run,
    figures=figures,
)
