"""Figures 1(b) and 21: the top eigenvectors of a layer's Hessian are nearly of rank one as matrices."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from ...kron import decouple_layers, matricize
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ...rng import Rng
from ._trained import Setting, trained

SOURCE = "Wu et al., Figure 21, Section G.2"


@dataclass(frozen=True)
class Config(Setting):
    network: str = "lenet5"
    layers: tuple[str, ...] = ("conv2", "fc1", "fc2", "fc3")
    k: int = 40


def run(config: Config) -> Outcome:
    """‖Mat(h_i)‖ / ‖Mat(h_i)‖_F for the k top eigenvectors, and for a random vector."""
    models = trained(config)
    space = models.examples.classes - 1
    data: dict[str, Any] = {}
    claims = []
    for name, d in decouple_layers(models.problem(), config.layers).items():
        shape = (len(d.output_hessian), len(d.input_autocorrelation))
        vectors = eigenpairs(d.exact, k=min(config.k, d.exact.shape[0])).vectors.cpu().double()
        ratios = torch.linalg.matrix_norm(matricize(vectors, shape), 2).numpy()
        noise = torch.randn(*shape, generator=Rng(config.seed).child("noise").torch(), dtype=torch.float64)
        chance = float(torch.linalg.matrix_norm(noise, 2) / torch.linalg.matrix_norm(noise))
        data[name] = {"ratios": ratios, "chance": chance}
        top = ratios[:space]
        claims.append(
            Claim(
                f"{name}: the top c - 1 eigenvectors are nearly of rank one.",
                SOURCE,
                f"mean ratio >= 0.8, all above 0.5 (random: {chance:.2f})",
                f"mean {top.mean():.3f}, smallest {top.min():.3f}",
                bool(top.mean() >= 0.8 and top.min() > 0.5),
            )
        )
    return Outcome("wu2022.fig21", asdict(config), data, tuple(claims))


def figures(outcome: Outcome) -> dict[str, Any]:
    """The ratio over the index, with that of a random vector."""
    panels = {
        name: {"eigenvector": found["ratios"], "random": np.full(len(found["ratios"]), found["chance"])}
        for name, found in outcome.data.items()
    }
    return {"rank": plots.curves(panels, "index", r"$\|Mat(h_i)\| / \|Mat(h_i)\|_F$")}


EXPERIMENT = Experiment(
    name="wu2022.fig21",
    title="Matricised top eigenvectors are nearly of rank one",
    source="Wu et al., Figures 1(b) and 21",
    quick=Config(examples=600, epochs=40, k=20),
    paper=Config(data="cifar10", examples=4000, epochs=30, rate=0.03, k=100),
    run=run,
    figures=figures,
)
