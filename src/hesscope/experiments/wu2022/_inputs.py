"""Shared by Tables 6, 7 and 9: how close E[x xᵀ] is to rank one, layer by layer and model by model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...kron import decouple_layers
from ...plots import kron as plots
from ...results.claims import Outcome
from ._trained import Setting, trained


def measure(settings: dict[str, Setting], runs: int, layers: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """(v₁ᵀ Ê[x])², λ₁/λ₂ and |μ|²/‖Σ‖ for every network: arrays `(runs, layers)`."""
    data: dict[str, Any] = {}
    for name, setting in settings.items():
        rows = []
        for run in range(runs):
            models = trained(replace(setting, seed=setting.seed + run))
            decoupled = decouple_layers(models.problem(), layers[name], curvature="gauss_newton").values()
            rows.append([(d.alignment(), d.spectral_ratio(), _bound(d)) for d in decoupled])
        table = np.array(rows)
        data[name] = {
            "layers": np.array(layers[name]),
            "alignment": table[:, :, 0],
            "ratio": table[:, :, 1],
            "bound": table[:, :, 2],
        }
    return data


def _bound(d: Any) -> float:
    """|μ|²/‖Σ‖ with μ the best rank-one mean: for one position, the mean itself."""
    if d.positions > 1:
        return float("nan")
    covariance = d.input_autocorrelation - torch.outer(d.input_mean, d.input_mean)
    return float(d.input_mean @ d.input_mean / torch.linalg.matrix_norm(covariance, 2))


def draw(outcome: Outcome) -> dict[str, Any]:
    """Mean alignment and ratio of every network."""
    names = list(outcome.data)
    alignment = {"alignment": np.array([outcome.data[n]["alignment"].mean() for n in names])}
    ratio = {"ratio": np.array([outcome.data[n]["ratio"].mean() for n in names])}
    return {
        "alignment": plots.bars(names, alignment, r"$(v_1^T \hat E[x])^2$"),
        "ratio": plots.bars(names, ratio, r"$\lambda_1/\lambda_2$ of $E[xx^T]$"),
    }


def span(values: Any) -> str:
    """Mean, minimum and maximum, as the paper's tables give them."""
    return f"mean {values.mean():.3f}, min {values.min():.3f}, max {values.max():.3f}"
