"""Figures 19 and 20: both factors along training, and the error of the conjecture with them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ...curvature import Problem
from ...kron import decouple
from ...plots import kron as plots
from ..base import Claim, Experiment, Outcome
from ._trained import Setting, examples, trained

SOURCE = "Wu et al., Figures 19 and 20, Section F.4"


@dataclass(frozen=True)
class Config(Setting):
    layer: str = "fc2"
    looks: int = 6
    k: int = 15


def run(config: Config) -> Outcome:
    """Eigenvalues of E[x xᵀ] and E[M], spectral and Frobenius error and overlap, at several epochs."""
    data = examples(config)
    epochs = np.unique(np.linspace(0, config.epochs, config.looks).round().astype(int))
    space = data.classes - 1
    rows: list[dict[str, Any]] = []

    def look(epoch: int, models: list[nn.Module]) -> None:
        if epoch in epochs:
            problem = Problem.of(models[0].eval(), "cross_entropy", (data.x, data.y))
            d = decouple(problem, config.layer)
            found = d.compare(space)
            tau = torch.linalg.eigvalsh(d.output_hessian).flip(0)
            rows.append(
                {
                    "inputs": torch.linalg.eigvalsh(d.input_autocorrelation).flip(0)[: config.k].numpy(),
                    "outputs": tau[: config.k].numpy(),
                    "share": float(tau[:space].sum() / tau.sum()),
                    "spectral": found.spectral_error,
                    "frobenius": found.frobenius_error,
                    "overlap": float(found.overlap[-1]),
                    "loss": problem.loss_value(),
                }
            )

    trained(config, watch=look)
    measured = {name: np.array([row[name] for row in rows]) for name in rows[0]} | {"epochs": epochs}
    return Outcome("wu2022.fig19", asdict(config), measured, tuple(_claims(measured, space)))


def _claims(found: dict[str, Any], space: int) -> list[Claim]:
    ratio = found["inputs"][:, 0] / found["inputs"][:, 1]
    share, spectral, overlap = found["share"], found["spectral"], found["overlap"]
    return [
        Claim(
            "E[x xᵀ] is close to rank one all along training.",
            SOURCE,
            "λ₁/λ₂ >= 2 at every look",
            f"{ratio.min():.1f} to {ratio.max():.1f}",
            bool(ratio.min() >= 2),
        ),
        Claim(
            "E[M] has about c large eigenvalues all along training.",
            SOURCE,
            f"the first {space} hold at least 80 % of its trace",
            f"{100 * share.min():.0f} % to {100 * share.max():.0f} %",
            bool(share.min() >= 0.8),
        ),
        Claim(
            "The conjecture is most accurate at initialisation, where it is proved, and stays below one in training.",
            "Wu et al., Section 7, made quantitative",
            "smallest spectral error at the first look, all below 1",
            ", ".join(f"{value:.2f}" for value in spectral),
            bool(spectral.argmin() == 0 and spectral.max() < 1),
        ),
        Claim(
            "The top c - 1 eigenspaces keep overlapping.",
            SOURCE,
            "overlap >= 0.6 at every look",
            ", ".join(f"{value:.2f}" for value in overlap),
            bool(overlap.min() >= 0.6),
        ),
    ]


def figures(outcome: Outcome) -> dict[str, Any]:
    """Top eigenvalues over epochs, and the errors."""
    found = outcome.data
    inputs = {f"$\\lambda_{{{i + 1}}}$": found["inputs"][:, i] for i in range(4)}
    places = (0, 4, 8, 9, 14)
    outputs = {f"$\\tau_{{{i + 1}}}$": found["outputs"][:, i] for i in places if i < found["outputs"].shape[1]}
    return {
        "eigenvalues": plots.curves(
            {"E[xxᵀ]": inputs, "E[M]": outputs}, "epoch", "eigenvalue", log=True, x=found["epochs"]
        ),
        "errors": plots.curves(
            {"the conjecture": {name: found[name] for name in ("spectral", "frobenius", "overlap")}},
            "epoch",
            "relative error, overlap",
            x=found["epochs"],
        ),
    }


EXPERIMENT = Experiment(
    name="wu2022.fig19",
    title="Both factors and the error of the conjecture along training",
    source="Wu et al., Figures 19 and 20",
    quick=Config(width=40, epochs=30),
    paper=Config(data="mnist", examples=10000, width=200, epochs=30, rate=0.03, looks=8),
    run=run,
    figures=figures,
)
