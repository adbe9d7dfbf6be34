"""Figures 1(b) and 21: the top eigenvectors of a layer's Hessian are nearly of rank one as matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...kron import decouple_layers, matricize
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import Measured, more
from ..recipe import Findings, experiment
from ._fits import as_data, fit_of, results, where_trained, with_fits
from ._trained import CIFAR, START, Setting, trained

SOURCE = "Wu et al., Figure 21, Section G.2"
CLAIMS = tuple(
    one
    for layer in ("conv1", "conv2", "fc1", "fc2", "fc3")
    for one in (
        more(f"{layer}-top", "Wu et al., Figures 1(b) and 21", f"{layer}: the top c - 1 eigenvectors are close to rank one (mean "
             "‖Mat(h)‖²/‖Mat(h)‖²_F)", 0.5, "“very close to rank 1”: the first singular value holds most of it", basis="convention"),
        more(f"{layer}-usual", SOURCE, f"{layer}: of all that are drawn, the ratio ‖Mat(h)‖/‖Mat(h)‖_F usually exceeds 0.5 (share of the "
             "eigenvectors)", 0.5, "“usually much larger than 0.5”"),
    )
)  # fmt: skip
SHOWN = 5  # eigenvectors whose singular values are drawn


@dataclass(frozen=True)
class Config(Setting):
    network: str = "lenet5"
    layers: tuple[str, ...] = ("conv2", "fc1", "fc2", "fc3")
    k: int = 40


def run(config: Config) -> Findings:
    """‖Mat(h_i)‖ / ‖Mat(h_i)‖_F for the k top eigenvectors, and for a random vector."""
    models = trained(config)
    space = models.examples.classes - 1
    data: dict[str, Any] = {}
    measured: dict[str, Measured] = {}
    for name, d in decouple_layers(models.problem(), config.layers).items():
        shape = (len(d.output_hessian), len(d.input_autocorrelation))
        vectors = eigenpairs(d.exact, k=min(config.k, d.exact.shape[0])).vectors.cpu().double()
        singular = torch.linalg.svdvals(matricize(vectors, shape))
        ratios = singular[:, 0].numpy()
        noise = torch.randn(*shape, generator=Rng(config.seed).child("noise").torch(), dtype=torch.float64)
        chance = float(torch.linalg.matrix_norm(noise, 2) / torch.linalg.matrix_norm(noise))
        data[name] = {"ratios": ratios, "chance": chance, "singular": singular[:SHOWN, :10].numpy()}
        measured[f"{name}-top"] = float((ratios[:space] ** 2).mean())
        measured[f"{name}-usual"] = float(np.mean(ratios > 0.5))
    fit = fit_of(models)
    return data | as_data({config.network: fit}), where_trained(measured, fit)


def figures(outcome: Outcome) -> dict[str, Any]:
    """The ratio over the index, with that of a random vector; singular values of the first eigenvectors."""
    panels = {
        name: {"eigenvector": found["ratios"], "random": np.full(len(found["ratios"]), found["chance"])}
        for name, found in results(outcome).items()
    }
    singular = {
        name: {f"$h_{{{i + 1}}}$": found["singular"][i] for i in range(len(found["singular"]))}
        for name, found in results(outcome).items()
    }
    drawn = {
        "rank": plots.curves(panels, "index", r"$\|Mat(h_i)\| / \|Mat(h_i)\|_F$"),
        "singular": plots.curves(singular, "place", "singular value of Mat(h)"),
    }
    return with_fits(drawn, outcome)


EXPERIMENT = experiment(
    __name__,
    "Matricised top eigenvectors are nearly of rank one",
    "Wu et al., Figures 1(b) and 21",
    quick=Config(examples=600, epochs=40, k=20),
    default=Config(**CIFAR, k=200, layers=("conv1", "conv2", "fc1", "fc2", "fc3")),
    paper=Config(data="cifar10", epochs=1000, rate=0.01, k=200, layers=("conv1", "conv2", "fc1", "fc2", "fc3")),
    chosen=f"10,000 of the 50,000 images of CIFAR-10 are at hand. {START}",
)
