"""Figures 11 to 15: which eigenvectors of the factors the eigenvectors of a layer's Hessian are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...kron import Decoupling, correspondence, decouple_layers, matricize
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Measured, less, more
from ..recipe import Findings, experiment
from ._fits import as_data, fit_of, results, where_trained, with_fits
from ._trained import CIFAR, START, Setting, trained

SOURCE = "Wu et al., Figures 11 to 15, Definition F.1"
FIGURE = {"fc1": "Figures 11 and 12", "fc2": "Figure 13", "conv1": "Figure 14", "conv2": "Figure 15"}
CLAIMS = (
    *(
        more(f"{layer}-first", f"Wu et al., {figure}", f"{layer}: the top eigenvectors belong to the first eigenvector of E[x xᵀ] (mean "
             "correspondence of the first c - 1)", 0.5, "“a strong correlation with the first eigenvector”: most of each of them", basis="convention")
        for layer, figure in FIGURE.items()
    ),
    more("fc1-first-m", f"Wu et al., {FIGURE['fc1']}", "fc1: so do the top m (mean correspondence of the first m = 120)", 0.5,
         "“the top 120 eigenvectors ... the first eigenvector of E[x xᵀ] (horizontal pattern)”", basis="convention"),
    more("fc1-diagonal", f"Wu et al., {FIGURE['fc1']}", "fc1: the i-th of the top m eigenvectors corresponds to the i-th of E[M] (share of "
         "columns whose largest entry lies within one place of the diagonal)", 0.5, "“roughly ..., as shown by the diagonal pattern”", basis="convention",
         counted=120),
    more("fc2-diagonal", f"Wu et al., {FIGURE['fc2']}", "fc2: the same for the first c - 1 = 9", 0.5, "“the diagonal pattern in (b)”", basis="convention",
         counted=9),
    less("fc2-stops", f"Wu et al., {FIGURE['fc2']}", "fc2: beyond dimension 9 both stop (mean correspondence with the first eigenvector of "
         "columns 10 to 18 over columns 1 to 9)", 0.5, "“stops at dimension 9”: less than half is left", basis="convention"),
    *(
        less(f"{layer}-no-diagonal", f"Wu et al., {FIGURE[layer]}", f"{layer}: with E[M] there is no diagonal (the same share, first c - 1)",
             0.5, "“the correspondence matrices with E[M] do not exhibit the diagonal pattern”", basis="convention",
             counted=counted)
        for layer, counted in (("conv1", 6), ("conv2", 9))
    ),
    *(
        more(f"{layer}-alike", f"Wu et al., {figure}", f"{layer}: exact and decoupled Hessian show the same pattern (r² of the two "
             "correspondence matrices with E[x xᵀ])", 0.5, "“the similarity between the first row and the second row”: most of the variance", basis="convention")
        for layer, figure in FIGURE.items()
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    network: str = "lenet5"
    layers: tuple[str, ...] = ("conv1", "conv2", "fc1", "fc2")
    k: int = 40
    shown: int = 20


def run(config: Config) -> Findings:
    """Correspondence matrices of the exact and of the decoupled Hessian with both factors."""
    models = trained(config)
    data: dict[str, Any] = {}
    measured: dict[str, Measured] = {}
    space = models.examples.classes - 1
    for name, d in decouple_layers(models.problem(), config.layers).items():
        data[name] = _correspondences(d, config)
        measured |= _measured(name, data[name], space, len(d.output_hessian))
    fit = fit_of(models)
    return data | as_data({config.network: fit}), where_trained(measured, fit)


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


def _measured(name: str, found: dict[str, Any], space: int, m: int) -> dict[str, Measured]:
    inputs, outputs = found["exact inputs"], found["exact outputs"]
    space = min(space, m)
    alike = float(np.corrcoef(inputs.ravel(), found["decoupled inputs"].ravel())[0, 1])
    measured: dict[str, Measured] = {
        f"{name}-first": float(inputs[0, :space].mean()),
        f"{name}-alike": alike**2 if alike > 0 else 0.0,
    }
    if name.startswith("conv"):
        measured[f"{name}-no-diagonal"] = _on_diagonal(outputs, space)
    if name == "fc1" and min(inputs.shape[1], outputs.shape[0]) >= m:
        measured |= {"fc1-first-m": float(inputs[0, :m].mean()), "fc1-diagonal": _on_diagonal(outputs, m)}
    if name == "fc2":
        measured["fc2-diagonal"] = _on_diagonal(outputs, space)
        measured["fc2-stops"] = float(inputs[0, space : 2 * space].mean() / inputs[0, :space].mean())
    return measured


def _on_diagonal(matrix: Any, columns: int) -> float:
    """The share of the first columns whose largest entry is within one place of the diagonal."""
    largest = matrix[:, :columns].argmax(axis=0)
    return float(np.mean(np.abs(largest - np.arange(columns)) <= 1))


def figures(outcome: Outcome) -> dict[str, Any]:
    """Four heat maps per layer."""
    drawn = {
        name: plots.correspondences(
            {
                "exact, with E[xxᵀ]": found["exact inputs"],
                "exact, with E[M]": found["exact outputs"],
                "decoupled, with E[xxᵀ]": found["decoupled inputs"],
                "decoupled, with E[M]": found["decoupled outputs"],
            }
        )
        for name, found in results(outcome).items()
    }
    return with_fits(drawn, outcome)


EXPERIMENT = experiment(
    __name__,
    "Eigenvector correspondence matrices of LeNet5",
    "Wu et al., Figures 11 to 15",
    quick=Config(examples=600, epochs=40, k=20),
    default=Config(**CIFAR, k=130, shown=130),
    paper=Config(data="cifar10", epochs=1000, rate=0.01, k=130, shown=130),
    chosen=f"10,000 of the 50,000 images of CIFAR-10 are at hand. {START}",
)
