"""Table 8: the top eigenspace of E[M] from weights alone, as printed and with activation frequencies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...kron import decouple_layers, predicted_output_eigenspace, subspace_overlap
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Measured, less, more
from ..long_runs import progress
from ..recipe import Findings, experiment
from ._drawing import printed_marks
from ._fits import TrainingFit, as_data, fit_of, results, where_trained, with_fits
from ._printed import TABLE_8
from ._trained import START, Setting, TrainedModels, only_setting, trained, untrained

SOURCE = "Wu et al., Table 8, Section G.1"
LAYERS = ("fc1", "fc2", "fc3")
CLAIMS = (
    *(
        replace(more(f"{data}-{network}-{layer}", SOURCE, f"{network} on {data}, {layer}: the printed closed form has high overlap with the "
                     "top c - 1 eigenspace of E[M]", 0.5, "“high overlap”: more than half of the space", basis="convention"), printed=value)
        for (data, network), row in TABLE_8.items()
        for layer, value in zip(LAYERS, row, strict=True)
        if not data.endswith("-R")
    ),
    *(
        replace(less(f"{data}-{network}-fc1", SOURCE, f"{network} on {data}, fc1: random labels lower the overlap (over that with true "
                     "labels)", 1, "“the overlap can be low for random-label datasets”"),
                printed=row[0] / TABLE_8[data.removesuffix("-R"), network][0])
        for (data, network), row in TABLE_8.items()
        if data.endswith("-R")
    ),
    more("corrected", SOURCE, "Activation frequencies in place of 1/2 raise the overlap on average over all layers and cases (mean "
         "improvement)", 0, "(272) without its factor 1/2", corrected=True),
    more("initialisation", "Wu et al., Theorem 4.2, remark", "At initialisation the corrected form has high overlap in every layer "
         "(smallest)", 0.5, "“high overlap”", corrected=True, basis="convention"),
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    """`columns` of the table as data set and network, "mnist-R/LeNet5"; at quick size digits stand in the place of MNIST."""

    columns: tuple[str, ...] = ("mnist/F", "mnist-R/F", "mnist/LeNet5")
    random_epochs: int = 60


def run(config: Config) -> Findings:
    """Fully connected and LeNet5 networks, true and random labels, and one at initialisation."""
    base = only_setting(config)
    data: dict[str, Any] = {"initialisation": _overlaps(untrained(base))}
    fits: dict[str, TrainingFit] = {}
    for column in config.columns:
        progress(column)
        name, _, network = column.partition("/")
        random = name.endswith("-R")
        setting = replace(
            base,
            data=config.data if config.data == "digits" else name.removesuffix("-R"),
            network="lenet5" if network == "LeNet5" else "dense",
            random_labels=random,
            epochs=config.random_epochs if random else config.epochs,
        )
        models = trained(setting)
        data[column], fits[column] = _overlaps(models), fit_of(models)
    return data | as_data(fits), _measured(config, data, fits)


def _measured(config: Config, data: dict[str, Any], fits: dict[str, TrainingFit]) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    small = "digits, not the paper's data: no claim" if config.data == "digits" else ""
    for column in config.columns:
        name, _, network = column.partition("/")
        if name.endswith("-R"):
            true = f"{name.removesuffix('-R')}/{network}"
            if true in data:
                quotient = {f"{name}-{network}-fc1": float(data[column]["printed"][0] / data[true]["printed"][0])}
                measured |= where_trained(quotient, fits[true])  # one cannot ask a fit of labels drawn at random
            continue
        here: dict[str, Measured] = {
            f"{name}-{network}-{layer}": (float(value), f"{value:.3f} {small}".strip())
            for layer, value in zip(LAYERS, data[column]["printed"], strict=False)
        }
        measured |= where_trained(here, fits[column])
    every = np.concatenate([found["corrected"] - found["printed"] for found in data.values()])
    true_labels = [fit for column, fit in fits.items() if "-R/" not in column]
    return measured | {
        **where_trained({"corrected": float(every.mean())}, *true_labels),
        "initialisation": float(data["initialisation"]["corrected"].min()),
    }


def _overlaps(models: TrainedModels) -> dict[str, Any]:
    problem = models.problem()
    layers = [name for name, _ in models.models[0].named_children() if name in LAYERS]
    decoupled = decouple_layers(problem, layers)
    space = models.examples.classes - 1
    corrected, printed = [], []
    for name in layers:
        top = torch.linalg.eigh(decoupled[name].output_hessian)[1][:, -space:]
        predicted = predicted_output_eigenspace(problem, name)
        corrected.append(subspace_overlap(predicted.corrected, top))
        printed.append(subspace_overlap(predicted.printed, top))
    return {"layers": np.array(layers), "corrected": np.array(corrected), "printed": np.array(printed)}


def figures(outcome: Outcome) -> dict[str, Any]:
    """Both closed forms for every network and layer, and the paper's numbers."""
    data = results(outcome)
    groups = [f"{name}, {layer}" for name, d in data.items() for layer in d["layers"]]
    values = {key: np.concatenate([found[key] for found in data.values()]) for key in ("corrected", "printed")}
    marks = []
    for name, found in data.items():
        on, _, network = name.partition("/")
        row = TABLE_8.get((on, network), (np.nan,) * 3)
        marks += list(row[: len(found["layers"])])
    drawn = plots.bars(groups, values, "overlap with the top space")
    return with_fits({"overlap": printed_marks(drawn, list(values).index("printed"), marks)}, outcome)


EXPERIMENT = experiment(
    __name__,
    "Closed-form eigenspaces of output Hessians",
    "Wu et al., Table 8",
    quick=Config(width=48, epochs=20, examples=800, batch_size=32),
    default=Config(
        data="mnist",
        examples=2000,
        width=1500,
        depth=3,
        epochs=40,
        rate=0.01,
        momentum=0.9,
        batch_size=32,
        random_epochs=80,
        columns=tuple(f"{data}/{network}" for data, network in TABLE_8),
    ),
    paper=Config(
        data="mnist",
        width=1500,
        depth=3,
        epochs=1000,
        rate=0.01,
        random_epochs=1000,
        columns=tuple(f"{data}/{network}" for data, network in TABLE_8),
    ),
    chosen=f"10,000 of the 50,000 images of CIFAR-10 are at hand. {START}",
)
