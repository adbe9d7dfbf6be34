"""Figures 16 to 18: eigenvectors of VGG11's convolutions belong to the first eigenvector of E[x xᵀ]; the trained ResNet-20 too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...kron import correspondence, decouple_layers, matricize
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import more
from ..recipe import Findings, experiment
from ._fits import as_data, results, where_trained, with_fits
from ._pretrained import problem_of
from ._trained import START, STEEP, Setting

CLAIMS = tuple(
    more(f"layer-{place}", f"Wu et al., Figure {15 + place}", f"Layer {place} of the list (paper: conv{place} of VGG11): the top c - 1 eigenvectors "
         "belong to the first eigenvector of E[x xᵀ] (mean correspondence)", 0.5, "“a strong correlation with the first eigenvector”: most of "
         "each of them", basis="convention")
    for place in (1, 2, 3)
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    """`network` may also be "resnet20" or "resnet32": trained weights with batch-norm, from the data folder."""

    network: str = "vgg11"
    layers: tuple[str, ...] = ("conv1", "conv2", "conv3")
    k: int = 40
    shown: int = 30


def run(config: Config) -> Findings:
    """Correspondence matrices of the exact layer Hessian with E[x xᵀ]."""
    problem, classes, fit = problem_of(config)
    data: dict[str, Any] = {}
    for name, d in decouple_layers(problem, config.layers).items():
        shape = (len(d.output_hessian), len(d.input_autocorrelation))
        vectors = eigenpairs(d.exact, k=min(config.k, d.exact.shape[0])).vectors.cpu().double()
        basis = torch.linalg.eigh(d.input_autocorrelation)[1].flip(1)[:, : config.shown]
        data[name] = correspondence(matricize(vectors, shape), basis, side="inputs").numpy()
    measured = {f"layer-{i}": float(np.mean(found[0, : classes - 1])) for i, found in enumerate(data.values(), start=1)}
    return data | as_data({config.network: fit}), where_trained(measured, fit)


def figures(outcome: Outcome) -> dict[str, Any]:
    """One heat map per layer."""
    maps = {f"{name}, with E[xxᵀ]": found for name, found in results(outcome).items()}
    return with_fits({"inputs": plots.correspondences(maps)}, outcome)


EXPERIMENT = experiment(
    __name__,
    "Eigenvector correspondence matrices of VGG11",
    "Wu et al., Figures 16 to 18",
    quick=Config(**{**STEEP, "batch_size": 16}, examples=96, width=8, epochs=40, k=16, shown=12),
    default=Config(**STEEP, data="cifar10", examples=1000, width=16, epochs=60),
    paper=Config(data="cifar10", width=64, epochs=1000, rate=0.01, k=80, shown=60),
    chosen=f"width 64 in every layer, where the captions have 64, 128 and 256; 10,000 of the 50,000 images are at hand. {START}",
)
