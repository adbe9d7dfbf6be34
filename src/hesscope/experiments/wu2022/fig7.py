"""Figures 7 and 8: overlap of the top eigenspaces of convolutional layers, in VGG11 and ResNet18 at reduced width."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...kron import model_overlap
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Measured, at_least, more
from ..recipe import Findings, experiment
from ._fits import TrainingFit, as_data, fit_of, results, where_trained, with_fits
from ._overlaps import arrays, beyond_chance, starts_high
from ._trained import START, STEEP, Setting, trained

FIGURE = {"vgg11": "Figure 7", "resnet18": "Figure 8"}
CLAIMS = (
    *(
        more(f"{network}-{what}", f"Wu et al., {figure}", f"{network}: {text}", 0.5, because, basis="convention")
        for network, figure in FIGURE.items()
        for what, text, because in (
            ("peaks", "the overlap of most convolutions peaks around their number of output channels m (share of the layers measured whose "
             "largest overlap lies between 0.8 m and 1.25 m)", "“for most of the convolutional layers ... peaks around the dimension”"),
            ("last", "the last layer's overlap remains around a constant before m (mean over k <= m/2 over that at m)",
             "“remains around a constant then drops”"),
        )
    ),
    *(
        at_least(f"{network}-chance", f"Wu et al., {figure}", f"{network}: at k = m every convolution measured overlaps beyond chance (smallest, "
                 "in standard errors over pairs)", 4.0, "“nontrivial eigenspace overlap”: 4 standard errors above chance",
                 basis="sampling theory")
        for network, figure in FIGURE.items()
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    """Both networks at `width`; ResNet18's layers are blocks.B.convI."""

    networks: tuple[str, ...] = ("vgg11", "resnet18")
    vgg_layers: tuple[str, ...] = ("conv2", "conv5", "conv8", "fc1")
    resnet_layers: tuple[str, ...] = ("blocks.0.conv1", "blocks.7.conv2", "fc1")
    models: int = 5
    k: int = 100


def run(config: Config) -> Findings:
    """Every pair of independently trained models, layer by layer."""
    data: dict[str, Any] = {}
    measured: dict[str, Measured] = {}
    fits: dict[str, TrainingFit] = {}
    for network in config.networks:
        found = trained(replace(config, network=network), config.models)
        fits[network] = fit_of(found)
        here: dict[str, Measured] = {}
        # In double precision: behind the first few, eigenvalues of deep layers are below the noise of single.
        problems = [found.problem(i).cast(torch.float64) for i in range(config.models)]
        peaks, scores = [], []
        for layer in config.vgg_layers if network == "vgg11" else config.resnet_layers:
            if not all(bool(one.select(f"{layer}.*").gradient().any()) for one in problems):
                continue  # no unit behind this layer is on in one of the models: it has no Hessian to compare
            overlap = model_overlap(problems, layer, k=config.k)
            data[f"{network}, {layer}"] = arrays(overlap)
            if layer == "fc1":
                here[f"{network}-last"] = starts_high(overlap)
                continue
            scores.append(beyond_chance(overlap))
            peaks.append((1 + int(overlap.mean.argmax())) / overlap.outputs)
        if peaks:
            here[f"{network}-peaks"] = float(np.mean([0.8 <= peak <= 1.25 for peak in peaks]))
            here[f"{network}-chance"] = min(scores)
        measured |= where_trained(here, fits[network])
    return data | as_data(fits), measured


def figures(outcome: Outcome) -> dict[str, Any]:
    """One figure per network, one panel per layer."""
    drawn = {
        network: plots.model_overlaps(
            {name.split(", ")[1]: part for name, part in results(outcome).items() if name.startswith(network)}
        )
        for network in outcome.config["networks"]
    }
    return with_fits(drawn, outcome)


EXPERIMENT = experiment(
    __name__,
    "Overlap of the top eigenspaces in VGG11 and ResNet18",
    "Wu et al., Figures 7 and 8",
    quick=Config(
        networks=("vgg11",),  # ResNet18 is not trained in seconds
        **{**STEEP, "batch_size": 16},
        examples=96,
        width=12,
        epochs=64,
        models=3,
        k=16,
        vgg_layers=("conv5", "fc1"),
        resnet_layers=("blocks.7.conv2", "fc1"),
    ),
    default=Config(**STEEP, data="cifar10", examples=1000, width=12, epochs=60, models=3, k=36, measured_on=400),
    paper=Config(data="cifar100", width=48, epochs=1000, rate=0.01),
    chosen=f"width 48 on the 5,000 images of CIFAR-100 at hand, some of the layers; --set data=cifar10 width=32 is the first panel. {START}",
)
