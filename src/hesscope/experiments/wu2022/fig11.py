"""Figures 11 to 15: which eigenvectors of the factors the eigenvectors of a layer's Hessian are made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from ...kron import Decoupling, correspondence, decouple_layers, matricize
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ._trained import Setting, trained

SOURCE = "Wu et al., Figures 11 to 15, Definition F.1"


@dataclass(frozen=True)
class Config(Setting):
    network: str = "lenet5"
    layers: tuple[str, ...] = ("conv1", "conv2", "fc1", "fc2")
    k: int = 40
    shown: int = 20


def run(config: Config) -> Outcome:
    """Correspondence matrices of the exact and of the decoupled Hessian with both factors."""
    models = trained(config)
    data: dict[str, Any] = {}
    claims: list[Claim] = []
    space = models.examples.classes - 1
    for name, d in decouple_layers(models.problem(), config.layers).items():
        data[name] = _correspondences(d, config)
        claims += _claims(name, data[name], min(space, len(d.output_hessian)), len(d.output_hessian))
    return Outcome("wu2022.fig11", asdict(config), data, tuple(claims))


def _correspondences(d: Decoupling, config: Config) -> dict[str, Any]:
    m, n = len(d.output_hessian), len(d.input_autocorrelation)
    k = min(config.k, m * n)
    exact = eigenpairs(d.exact, k=k).vectors.cpu().double()
    out: dict[str, Any] = {}
    for kind, vectors in (("exact", exact), ("decoupled", d.eigenpairs(k)[1])):
        stack = matricize(vectors, (m, n))
        for side, factor in (("inputs", d.input_autocorrelation), ("outputs", d.output_hessian)):
            basis = torch.linalg.eigh(factor)[1].flip(1)[:, : config.shown]
            out[f"{kind} {side}"] = correspondence(stack, basis, side=side).numpy()
    return out


def _claims(name: str, found: dict[str, Any], space: int, m: int) -> list[Claim]:
    first = float(found["exact inputs"][0, :space].mean())
    similar = float(np.corrcoef(found["exact inputs"].ravel(), found["decoupled inputs"].ravel())[0, 1])
    claims = [
        Claim(
            f"{name}: the exact and the decoupled Hessian show the same pattern.",
            SOURCE,
            "correlation of the two correspondence matrices with E[x xᵀ] >= 0.5",
            f"{similar:.2f}",
            similar >= 0.5,
        )
    ]
    if name.startswith("fc"):  # for convolutions (33) is too rough for a diagonal
        on_diagonal = float(np.diag(found["exact outputs"])[:space].mean())
        chance = 1 / m
        claims += [
            Claim(
                f"{name}: the top c - 1 eigenvectors belong to the first eigenvector of E[x xᵀ].",
                SOURCE,
                "mean correspondence >= 0.6",
                f"{first:.3f}",
                first >= 0.6,
            ),
            Claim(
                f"{name}: the i-th eigenvector corresponds to the i-th of E[M], i < c: a diagonal.",
                SOURCE,
                f"mean on the diagonal at least 5 times chance ({chance:.3f})",
                f"{on_diagonal:.3f}",
                on_diagonal >= 5 * chance,
            ),
        ]
    return claims


def figures(outcome: Outcome) -> dict[str, Any]:
    """Four heat maps per layer."""
    return {
        name: plots.correspondences(
            {
                "exact, with E[xxᵀ]": found["exact inputs"],
                "exact, with E[M]": found["exact outputs"],
                "decoupled, with E[xxᵀ]": found["decoupled inputs"],
                "decoupled, with E[M]": found["decoupled outputs"],
            }
        )
        for name, found in outcome.data.items()
    }


EXPERIMENT = Experiment(
    name="wu2022.fig11",
    title="Eigenvector correspondence matrices of LeNet5",
    source="Wu et al., Figures 11 to 15",
    quick=Config(examples=600, epochs=40, k=20, layers=("conv2", "fc1", "fc2")),
    paper=Config(data="cifar10", examples=4000, epochs=30, rate=0.03, k=130, shown=40),
    run=run,
    figures=figures,
)
