"""Beyond the paper: a convolutional network by channel and neuron, before and after training."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from ...curvature import Problem
from ...plots.blocks import draw_norms, layer_bars
from ...plots.style import new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ...structure import structure_history
from ...zoo import load
from ...zoo.models import initialised_by
from ..declared import less, more
from ..recipe import Experiment, Findings
from ._measured import SOURCE, train

LAYERS = ("conv1", "conv2", "fc")
CLAIMS = (
    more("trained", f"beyond {SOURCE}", "The network is trained (accuracy over that of guessing)", 1, "better than chance"),
    *(
        less(f"{moment}-{layer}", f"beyond {SOURCE}, Finding 1", f"{layer}, {moment}: off-diagonal blocks are smaller than diagonal "
             "ones (mean ratio)", 1, "“smaller”")
        for layer in LAYERS
        for moment in ("start", "end")
    ),
    less("kept", f"beyond {SOURCE}, Finding 1", "The structure is maintained (largest quotient of the ratio's end over its start)", 2,
         "“maintains along training”: not lost by half", basis="convention"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Two convolutions and a linear layer on the embedded digits; curvature on the first `examples`."""

    channels: tuple[int, int] = (4, 8)
    examples: int = 200
    steps: int = 300
    rate: float = 1e-2
    seed: int = 0


def run(config: Config) -> Findings:
    """Exact norms of all blocks at initialisation, halfway and at the end."""
    digits = load("digits")
    rng = Rng(config.seed).child("cnn")
    x, y = digits.x[:, None], digits.y
    first, second = config.channels
    with initialised_by(rng.child("network")):
        model = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(1, first, 3, padding=1),
                gelu1=nn.GELU(),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(first, second, 3, padding=1),
                gelu2=nn.GELU(),
                pool2=nn.MaxPool2d(2),
                flat=nn.Flatten(),
                fc=nn.Linear(4 * second, 10),
            )
        )
    everything = Problem.of(model, "cross_entropy", (x, y), batch_size=4096)
    kept = train(everything, config.steps, config.rate, (0.0, 0.1, 1.0), 128, rng)
    with torch.no_grad():
        right = float((functional_call(model, kept[-1][1], (x,)).argmax(1) == y).double().mean())
    course = structure_history(everything.subset(config.examples), kept)
    start = course.snapshots[0]
    ratios = {layer: (float(values[0]), float(values[-1])) for layer, values in course.ratios.items()}
    data = {
        "norms": np.stack([norms.norms for norms in course.snapshots]),
        "layers": start.layers,
        "steps": course.steps,
        "loss": course.loss,
        "ratios": {layer: np.array(values) for layer, values in course.ratios.items()},
        "share": course.diagonal_share,
    }
    measured = {"trained": 10 * right, "kept": max(pair[1] / pair[0] for pair in ratios.values())}
    for layer, pair in ratios.items():
        measured[f"start-{layer}"], measured[f"end-{layer}"] = pair
    return data, measured


def figures(result: Outcome) -> dict[str, Any]:
    """Block-norm maps at the start and the end, and ratios by layer."""
    data = result.data
    figure, axes = new_figure(1, 3, width=4.4, height=3.9)
    for axis, k in ((axes[0], 0), (axes[1], -1)):
        title = f"step {data['steps'][k]:.0f}, loss {data['loss'][k]:.3g}"
        drawn = draw_norms(axis, data["norms"][k], data["layers"], title, 2.0)
        axis.set_xlabel("channel or neuron, by layer")
        axis.set_ylabel("channel or neuron, by layer")
    figure.colorbar(drawn, ax=axes[1], shrink=0.8).set_label("log₁₀, relative")
    steps = [f"step {step:.0f}" for step in data["steps"]]
    layer_bars(axes[2], {step: {n: float(v[k]) for n, v in data["ratios"].items()} for k, step in enumerate(steps)})
    figure.suptitle("A convolutional network on digits: exact norms of all blocks", fontsize=11)
    return {"cnn": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "A convolutional network by channel and neuron",
    "beyond Dong et al. 2025",
    quick=Config(),
    default=Config((8, 16), 1000, 1500),
    paper=Config((8, 16), 1000, 1500),
    chosen="everything: the paper has no convolutional network.",
)
