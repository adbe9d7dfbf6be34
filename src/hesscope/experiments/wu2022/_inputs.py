"""Shared by Tables 6, 7 and 9: how close E[x xᵀ] is to rank one, layer by layer and model by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Declared, Measured, between
from ..long_runs import progress
from ._fits import TrainingFit, fit_of, where_trained
from ._moments import KINDS, closeness, input_moments, mean_bound
from ._printed import InputRow
from ._trained import CIFAR, DEEP, MNIST, Setting, trained

CLASSES = {"digits": 10, "mnist": 10, "cifar10": 10, "cifar100": 100}
WITHOUT = ", without"  # a network of Table 9 without its batch-norm
TRAINED = ("epochs", "batch_size", "rate", "momentum", "xavier", "seed")  # what is kept beside a row


def setting_of(row: InputRow, base: Setting, common: bool = False) -> Setting:
    """The row's network and data, trained as `base` says, or as default sizes of this paper have in common."""
    shared = DEEP.get(row.network) or (MNIST if row.data == "mnist" else CIFAR)
    base = replace(base, **shared) if common else base
    size = {"fc1": row.width} if row.network == "lenet5" else {"width": row.width, "depth": row.depth}
    return replace(base, data=row.data, network=row.network, batch_norm=row.batch_norm, **size)  # type: ignore[arg-type]


def declared(row: InputRow) -> tuple[Declared, Declared]:
    """Our means lie within the range that the paper's runs have."""
    where = f"Wu et al., Table {row.table}"
    name = f"{row.name} on {row.data}" + (", convolutions" if row.table == 7 else "")
    half = 0.0005  # the third decimal is the last that is printed
    return (
        between(f"{row.id}-alignment", where, f"{name}: mean of (v₁ᵀÊ[x])²", row.alignment[1] - half, row.alignment[2] + half,
                "smallest and largest of the paper's runs", printed=row.alignment[0]),
        between(f"{row.id}-ratio", where, f"{name}: mean of λ₁/λ₂", row.ratio[1], row.ratio[2],
                "smallest and largest of the paper's runs", printed=row.ratio[0]),
    )  # fmt: skip


def measure(setting: Setting, runs: int, name: str) -> dict[str, dict[str, Any]]:
    """(v₁ᵀÊ[x])², λ₁/λ₂ and |μ|²/‖Σ‖ of all layers but the first of the network, by kind ("fc", "conv"): (runs, layers)."""
    models = trained(setting, runs)
    layers = {kind: hidden_layers(models.models[0], kind) for kind in KINDS}
    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for run, model in enumerate(models.models):
        progress(f"{name}: network {run + 1} of {runs}")
        moments = input_moments(model, models.examples.first(setting.measured_on).x, kinds=tuple(KINDS))
        for kind, rows in found.items():
            rows.append([(*closeness(*moments[layer]), mean_bound(*moments[layer])) for layer in layers[kind]])
    fit = fit_of(models)
    tables = {kind: np.array(rows) for kind, rows in found.items() if layers[kind]}
    return {
        kind: {
            "layers": np.array(layers[kind]),
            "alignment": table[:, :, 0],
            "ratio": table[:, :, 1],
            "bound": table[:, :, 2],
            "loss": fit.loss,
            "accuracy": fit.accuracy,
            "trained": {key: getattr(setting, key) for key in TRAINED},
        }
        for kind, table in tables.items()
    }


def hidden_layers(model: Any, kind: str) -> tuple[str, ...]:
    """Layers whose inputs come from another layer: all of that kind but the network's first layer."""
    weighted = [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear | torch.nn.Conv2d)]
    return tuple(name for name, module in weighted[1:] if isinstance(module, KINDS[kind]))


def in_rows(rows: Sequence[InputRow], data: dict[str, Any]) -> dict[str, Measured]:
    """The two numbers of every row that was measured."""
    found: dict[str, Measured] = {}
    for row in rows:
        if row.id in data:
            here: dict[str, Measured] = {
                f"{row.id}-{key}": (float(data[row.id][key].mean()), span(data[row.id][key]))
                for key in ("alignment", "ratio")
            }
            found |= where_trained(here, fit_in(data[row.id], CLASSES[row.data]))
    return found


def fit_in(found: dict[str, Any], classes: int) -> TrainingFit:
    """How well the networks are trained that `measure` looked at."""
    return TrainingFit(found["loss"], found["accuracy"], classes)


def draw(outcome: Outcome, rows: Sequence[InputRow]) -> dict[str, Any]:
    """Mean, smallest and largest alignment and ratio of every network, with the paper's range beside them."""
    found = {name: part for name, part in outcome.data.items() if isinstance(part, dict) and "ratio" in part}
    printed = {row.id: row for row in rows}
    called = {
        name: f"{_called(name, printed)}, loss {np.max(part.get('loss', np.nan)):.2g}" for name, part in found.items()
    }
    return {
        key: plots.ranges(
            {called[name]: part[key] for name, part in found.items()},
            {called[name]: getattr(printed[name], key) for name in found if name in printed},
            label,
            log=key == "ratio",
        )
        for key, label in (("alignment", r"$(v_1^T \hat E[x])^2$"), ("ratio", r"$\lambda_1/\lambda_2$ of $E[xx^T]$"))
    }


def _called(name: str, printed: Mapping[str, InputRow]) -> str:
    """As the paper has it; the same network without batch-norm has no row of its own."""
    row = name.removesuffix(WITHOUT)
    if row not in printed:
        return name
    return printed[row].shown if row == name else printed[row].shown.replace("-BN", "")


def span(values: Any) -> str:
    """Mean, minimum and maximum, as the paper's tables give them."""
    return f"mean {values.mean():.3f}, min {values.min():.3f}, max {values.max():.3f}"
