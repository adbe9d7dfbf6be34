"""Shared by Tables 6, 7 and 9: how close E[x xᵀ] is to rank one, layer by layer and model by model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...kron import decouple_layers
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Declared, Measured, between
from ..long_runs import progress
from ._printed import InputRow
from ._trained import CIFAR, MNIST, Setting, trained


def setting_of(row: InputRow, base: Setting, common: bool = False) -> Setting:
    """The row's network and data, trained as `base` says, or as default sizes of this paper have in common."""
    base = replace(base, **(MNIST if row.data == "mnist" else CIFAR)) if common else base
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


def measure(setting: Setting, runs: int, kind: str, name: str) -> dict[str, Any]:
    """(v₁ᵀÊ[x])², λ₁/λ₂ and |μ|²/‖Σ‖ of all layers of a kind ("fc" or "conv") but the first of the network: (runs, layers)."""
    rows: list[Any] = []
    models = trained(setting, runs)
    layers = hidden_layers(models.models[0], kind)
    for run in range(runs):
        progress(f"{name}: network {run + 1} of {runs}")
        decoupled = decouple_layers(models.problem(run), layers, curvature="gauss_newton").values()
        rows.append([(d.alignment(), d.spectral_ratio(), _bound(d)) for d in decoupled])
    table = np.array(rows)
    return {"layers": np.array(layers), "alignment": table[:, :, 0], "ratio": table[:, :, 1], "bound": table[:, :, 2]}


def hidden_layers(model: Any, kind: str) -> tuple[str, ...]:
    """Layers whose inputs come from another layer: all of that kind but the network's first layer."""
    kinds = {"fc": torch.nn.Linear, "conv": torch.nn.Conv2d}
    weighted = [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear | torch.nn.Conv2d)]
    return tuple(name for name, module in weighted[1:] if isinstance(module, kinds[kind]))


def in_rows(rows: Sequence[InputRow], data: dict[str, Any]) -> dict[str, Measured]:
    """The two numbers of every row that was measured."""
    found: dict[str, Measured] = {}
    for row in rows:
        if row.id in data:
            found[f"{row.id}-alignment"] = (float(data[row.id]["alignment"].mean()), span(data[row.id]["alignment"]))
            found[f"{row.id}-ratio"] = (float(data[row.id]["ratio"].mean()), span(data[row.id]["ratio"]))
    return found


def _bound(d: Any) -> float:
    """|μ|²/‖Σ‖ with μ the best rank-one mean: for one position, the mean itself."""
    if d.positions > 1:
        return float("nan")
    covariance = d.input_autocorrelation - torch.outer(d.input_mean, d.input_mean)
    return float(d.input_mean @ d.input_mean / torch.linalg.matrix_norm(covariance, 2))


def draw(outcome: Outcome, rows: Sequence[InputRow]) -> dict[str, Any]:
    """Mean, smallest and largest alignment and ratio of every network, with the paper's range beside them."""
    found = {name: part for name, part in outcome.data.items() if isinstance(part, dict) and "ratio" in part}
    printed = {row.id: row for row in rows}
    return {
        key: plots.ranges(
            {name: part[key] for name, part in found.items()},
            {name: getattr(printed[name], key) for name in found if name in printed},
            label,
            log=key == "ratio",
        )
        for key, label in (("alignment", r"$(v_1^T \hat E[x])^2$"), ("ratio", r"$\lambda_1/\lambda_2$ of $E[xx^T]$"))
    }


def span(values: Any) -> str:
    """Mean, minimum and maximum, as the paper's tables give them."""
    return f"mean {values.mean():.3f}, min {values.min():.3f}, max {values.max():.3f}"
