"""Figure 6: the overlap between models survives different hyper-parameters; layers of LeNet5."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...kron import model_overlap
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Measured, at_least, between, more
from ..recipe import Findings, experiment
from ._fits import as_data, fit_of, results, where_trained, with_fits
from ._overlaps import arrays, at_outputs, beyond_chance, starts_high
from ._trained import START, Setting, trained

SOURCE = "Wu et al., Figure 6, Section F.2.1"
LAYERS = ("conv1", "conv2", "fc1", "fc2", "fc3")
CLAIMS = (
    *(
        at_least(f"{layer}-chance", SOURCE, f"{layer}: models trained with different hyper-parameters overlap at k = m beyond chance, in "
                 "standard errors over pairs", 4.0, "“the pattern of overlap is clearly preserved”: 4 standard errors above chance",
                 basis="sampling theory")
        for layer in LAYERS
    ),
    *(
        more(f"{layer}-common", SOURCE, f"{layer}: it comes from a common structure, not from training alike (overlap at k = m, different "
             "hyper-parameters over the same)", 0.5, "“a common structure instead of similarities in training process”: most of it", basis="convention")
        for layer in LAYERS
    ),
    *(
        between(f"{layer}-peak", SOURCE, f"{layer}: the position of the peak agrees with the output dimension m (place of the largest "
                "overlap of all k, over m)", 0.8, 1.25, "“roughly agrees”: to a quarter", printed=1.0, basis="convention")
        for layer in LAYERS[:4]
    ),
    more("fc3-constant", SOURCE, "fc3: no linear growth from 0 as in other layers (mean overlap over k <= m/2 over that at k = m)", 0.5,
         "“we are not observing a linear growth starting from 0”: that would give a half at most", basis="convention"),
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    network: str = "lenet5"
    rates: tuple[tuple[float, float, float], ...] = ((0.1, 0, 0), (0.03, 0, 0), (0.03, 0.9, 5e-4))  # momentum, decay
    each: tuple[int, ...] = (2, 2, 2)
    k: int = 40
    layers: tuple[str, ...] = ("conv2", "fc3")


def run(config: Config) -> Findings:
    """Every pair of models, whether trained alike or not."""
    problems, schemes, fits = [], [], {}
    for scheme, ((rate, momentum, decay), count) in enumerate(zip(config.rates, config.each, strict=True)):
        setting = replace(config, rate=rate, momentum=momentum, weight_decay=decay, seed=config.seed + 100 * scheme)
        found = trained(setting, count)
        fits[f"rate {rate}, momentum {momentum}"] = fit_of(found)
        problems += [found.problem(i) for i in range(count)]
        schemes += [scheme] * count
    data: dict[str, Any] = {}
    measured: dict[str, Measured] = {}
    for layer in config.layers:
        overlap = model_overlap(problems, layer, k=config.k)
        data[layer] = arrays(overlap)
        across = np.array([schemes[i] != schemes[j] for i, j in overlap.pairs])
        there = overlap.measured[:, at_outputs(overlap) - 1]
        measured[f"{layer}-chance"] = beyond_chance(overlap, across)
        measured[f"{layer}-common"] = float(there[across].mean() / there[~across].mean())
        if layer == "fc3":
            measured["fc3-constant"] = starts_high(overlap)
        elif len(overlap.mean) > 1.5 * overlap.outputs:
            peak = 1 + int(overlap.mean.argmax())
            measured[f"{layer}-peak"] = (peak / overlap.outputs, f"k = {peak}, m = {overlap.outputs}")
    return data | as_data(fits), where_trained(measured, *fits.values())


def figures(outcome: Outcome) -> dict[str, Any]:
    """One panel per layer."""
    return with_fits({"overlap": plots.model_overlaps(results(outcome))}, outcome)


EXPERIMENT = experiment(
    __name__,
    "Overlap of models trained with different hyper-parameters",
    "Wu et al., Figure 6",
    quick=Config(examples=600, epochs=25, k=40, batch_size=32),
    default=Config(
        data="cifar10",
        epochs=20,
        batch_size=32,
        k=190,
        layers=LAYERS,
        each=(6, 5, 5),
        measured_on=1000,
        rates=((0.1, 0.0, 0.0), (0.03, 0.0, 0.0), (0.01, 0.9, 5e-4)),
    ),
    paper=Config(
        data="cifar10",
        epochs=1000,
        k=200,
        layers=LAYERS,
        each=(6, 5, 5),
        rates=((0.01, 0.0, 0.0), (0.001, 0.0, 0.0), (0.01, 0.9, 5e-4)),
    ),
    chosen=f"10,000 of the 50,000 images of CIFAR-10 are at hand. {START}",
)
