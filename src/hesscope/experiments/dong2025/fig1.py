"""Figure 1: |H| of a one-hidden-layer network at initialisation on CIFAR-100, under MSE and CE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...plots.blocks import draw_norms
from ...plots.style import new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ...structure import block_norms, heat_map
from ...zoo import load
from ..declared import at_least, more
from ..recipe import Experiment, Findings
from ._measured import NEAR, SOURCE, Loss, diagonal_share, draw_map, map_bar, network, problem_of, within

LOSSES: tuple[Loss, ...] = ("MSE", "CE")
# Under MSE H_vv is block-diagonal by its formula, so nothing is claimed of it.
PARTS = (("MSE", "fc1", "H_ww"), ("CE", "fc1", "H_ww"), ("CE", "fc2", "H_vv"))
CLAIMS = (
    *(
        more(f"{loss}-{layer}", f"{SOURCE}, Figure 1", f"{loss}: {part} is near-block-diagonal (share of its squared norm in "
             "diagonal blocks)", 0.5, NEAR, basis="convention")
        for loss, layer, part in PARTS
    ),
    *(
        at_least(f"{loss}-{layer}-rows", f"{SOURCE}, Figure 1", f"{loss}: in every block row of {part} the diagonal block is the "
                 "largest (share of the rows)", 1.0, "“m + C = 108 blocks in total”: each of them is seen")
        for loss, layer, part in PARTS
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """`pool` averages squares of pixels before the network sees the image (1 leaves it as it is)."""

    examples: int = 128
    hidden: int = 8
    pool: int = 4
    pixels: int = 256
    seed: int = 0
    data_dir: str | None = None


def run(config: Config) -> Findings:
    """Exact norms of all 108 x 108 blocks, and the picture, streamed."""
    images = load("cifar100", folder=config.data_dir)
    rng = Rng(config.seed).child("fig1")
    chosen = torch.randperm(len(images.x), generator=rng.child("images").torch())[: config.examples]
    x = torch.nn.functional.avg_pool2d(images.x[chosen], config.pool).flatten(1)
    y = images.y[chosen]
    data: dict[str, Any] = {"synthetic": images.synthetic}
    measured: dict[str, Any] = {}
    for loss in LOSSES:
        model = network((x.shape[1], config.hidden, images.classes), rng.child("network"))
        problem = problem_of(model, loss, x, y, images.classes)
        norms = block_norms(problem)
        picture = heat_map(problem, config.pixels)
        data[loss] = {"norms": norms.norms, "layers": norms.layers, "picture": picture.image, "bounds": picture.bounds}
        for case, layer, _ in PARTS:
            if case == loss:
                part = within(norms.norms, norms.layers, layer)
                measured[f"{loss}-{layer}"] = diagonal_share(part)
                measured[f"{loss}-{layer}-rows"] = float(np.mean(np.argmax(part, 1) == np.arange(len(part))))
    return data, measured


def figures(result: Outcome) -> dict[str, Any]:
    """|H| above, block norms below."""
    figure, axes = new_figure(2, 2, width=4.2, height=3.9)
    for column, loss in enumerate(LOSSES):
        part = result.data[loss]
        heat = draw_map(axes[0, column], part["picture"], part["bounds"], f"|H|, {loss}", ("w", "v"))
        map_bar(figure, axes[0, column], heat)
        drawn = draw_norms(axes[1, column], part["norms"], part["layers"], f"block norms, {loss}")
        figure.colorbar(drawn, ax=axes[1, column], shrink=0.8).set_label("log₁₀, relative to the layers' largest")
        axes[1, column].set_xlabel("neuron, by layer")
        axes[1, column].set_ylabel("neuron, by layer")
    data = "synthetic stand-in for CIFAR-100" if result.data["synthetic"] else "CIFAR-100"
    figure.suptitle(f"One hidden layer of 8 neurons at initialisation, {data}", fontsize=11)
    return {"fig1": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "Near-block-diagonal at initialisation, on images",
    "Dong et al. 2025, Figure 1",
    quick=Config(),
    default=Config(pool=1, pixels=512),
    paper=Config(pool=1, pixels=512),
    chosen="which 128 images; 5,000 of the 50,000 of CIFAR-100 are at hand.",
)
