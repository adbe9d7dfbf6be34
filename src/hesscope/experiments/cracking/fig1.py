"""Figure 1: the Hessian spectrum of a ReLU network with scalar input, eigenvalues coloured by their cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...closed_form import relu_network
from ...plots.style import CYCLE, MUTED, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import at_most, equal
from ..recipe import Experiment, Findings
from . import PAPER
from ._truth import double_backward_hessian, largest_gap

CLAIMS = (
    equal("closed-form", f"{PAPER}, Theorem 3.4, Figure 1", "The closed form equals double backward (relative gap)"),
    at_most("cells", f"{PAPER}, Theorem 3.4", "A cell of k units owns 2k eigenvalues (largest miscount)", 0, "a count"),
    equal(
        "sums",
        f"{PAPER}, Section 3.2",
        "The two eigenvalues of double backward that lie furthest from the bulk of a cell "
        "sum to that cell's trace (relative gap)",
    ),
)


@dataclass(frozen=True)
class Config:
    """Hidden width and number of samples."""

    width: int = 10
    samples: int = 100
    seed: int = 0


def run(config: Config) -> Findings:
    """Closed form and dense double backward of one network at initialisation."""
    rng = Rng(config.seed).child("fig1").numpy()
    w, v = rng.normal(size=(2, config.width))
    x, y = rng.normal(size=(2, config.samples))
    spectrum = relu_network(w, v, x, y)

    def loss(v_: torch.Tensor, w_: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(torch.as_tensor(x)[:, None] * v_)
        return ((hidden @ w_ - torch.as_tensor(y)) ** 2).sum() / (2 * len(x))

    hessian = double_backward_hessian(loss, [v, w])
    dense = np.linalg.eigvalsh(hessian)
    gap = largest_gap(spectrum.eigenvalues, hessian)
    values = np.array([b.value for b in spectrum.bulk for _ in range(b.multiplicity)] + spectrum.outliers.tolist())
    sources = [b.source for b in spectrum.bulk for _ in range(b.multiplicity)] + list(spectrum.outlier_sources)
    positive = int(np.sum(v > 0))
    cells = {"+ cell": positive, "- cell": config.width - positive}
    off = max(abs(sources.count(name) - 2 * count) for name, count in cells.items())
    sums = 0.0
    for sign, name in ((1, "+ cell"), (-1, "- cell")):
        predicted = [value for value, s in zip(spectrum.outliers, spectrum.outlier_sources, strict=True) if s == name]
        units, data = sign * v > 0, sign * x > 0
        trace = np.sum(x[data] ** 2) / len(x) * (w[units] @ w[units] + v[units] @ v[units])
        pair = [float(dense[np.abs(dense - value).argmin()]) for value in predicted]
        sums = max(sums, abs(sum(pair) / trace - 1))
    return {"eigenvalues": values, "sources": tuple(sources), "outliers": spectrum.outliers}, {
        "closed-form": gap,
        "cells": float(off),
        "sums": sums,
    }


def figures(result: Outcome) -> dict[str, Any]:
    """Eigenvalues in order, by cell."""
    values, sources = result.data["eigenvalues"], np.array(result.data["sources"])
    order = np.argsort(values)
    figure, axis = new_figure()
    for color, name in zip(CYCLE, ("+ cell", "- cell"), strict=False):
        places = np.flatnonzero(sources[order] == name)
        axis.scatter(places, values[order][places], s=26, color=color, label=name)
    axis.axvline(np.sum(values < 0) - 0.5, color=MUTED, ls=":", label="sign change")
    axis.set(xlabel="index of the eigenvalue", ylabel="eigenvalue", title="ReLU network: the spectrum, cell by cell")
    axis.set_yscale("symlog", linthresh=0.05)
    top = 2 * np.abs(values).max()
    axis.set_ylim(-top, top)
    axis.set_yticks([-1, -0.1, 0, 0.1, 1])
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend()
    return {"fig1": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "Spectrum of a ReLU network, cell by cell",
    "Cracking the Hessian, Figure 1",
    quick=Config(),
    default=Config(width=10, samples=1000),
    paper=Config(),
    chosen="100 standard normal examples and standard normal weights; the paper gives the width alone.",
)
