"""Figures 14-16: NTP norms, alignments of the two matrices, and ReLU networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import CYCLE, new_figure
from ...results.claims import Experiment, Outcome
from . import fig4
from ._claims import at_least, at_most, outcome
from ._ensemble import PARAMETRIZATIONS
from ._two_layer import (
    MOMENTS,
    NORMS,
    Study,
    alignment_correlations,
    draw_norm_correlations,
    measure,
    norm_correlations,
)


@dataclass(frozen=True)
class Config(fig4.Config):
    """As for Figure 4, with samples and steps of the ReLU networks apart (their data cannot be compressed)."""

    relu_ends: tuple[int, ...] = (1, 4)
    relu_samples: int = 96
    relu_steps: int = 150


def run(config: Config) -> Outcome:
    """Train the linear networks of three parametrizations, and ReLU networks of the same kinds."""
    c = config
    linear = fig4.studies(c, PARAMETRIZATIONS)
    relu = {
        p: measure(Study(p, c.width, c.relu_ends, c.networks, c.relu_samples, c.relu_steps, c.seed, relu=True))
        for p in PARAMETRIZATIONS
    }
    ntp = norm_correlations(linear["NTP"], linear["NTP"].sharpness)
    alignments = {name: alignment_correlations(m) for name, m in linear.items()}
    with_relu = {name: norm_correlations(m, m.sharpness) for name, m in relu.items()}
    wide = [i for i, ends in enumerate(c.ends) if ends > 1]
    best = fig4.best_over_layers(ntp)
    relu_best = np.stack([fig4.best_over_layers(t)[:, 1] for t in with_relu.values()])  # (parametrization, norm, size)
    return outcome(
        "fig14_16",
        config,
        {"ntp": {"NTP": ntp}, "alignment": alignments, "relu": with_relu},
        at_least(
            "NTP: the spectral norm correlates most with the sharpness at the end of training, at every size above 1 "
            "(smallest lead)",
            "Figure 14",
            float((best[0, 1, wide] - best[1:, 1, wide].max(axis=0)).min()),
            0.0,
        ),
        at_least(
            "NTP: both matrices take part at the end of training (smaller of the two spectral correlations)",
            "Figure 14",
            float(ntp[0, 1].min()),
            0.3,
        ),
        at_most(
            "Once fitted, the alignment is the teacher's, the same for every network, and cannot explain the sharpness: the "
            "largest |r| of an alignment stays below the best norm's",
            "Figure 15, at the end",
            float(
                max(
                    (np.abs(a[:, 1]).max(axis=0) - fig4.best_over_layers(t)[0, 1]).max()
                    for a, t in _pairs(linear, alignments)
                )
            ),
            0.0,
        ),
        at_least(
            "ReLU: squared norms of one matrix still correlate with the sharpness of trained networks (best norm, smallest "
            "over parametrizations and sizes)",
            "Figure 16",
            float(relu_best.max(axis=1).min()),
            0.25,
        ),
        at_least(
            "ReLU: of the first matrix the Frobenius norm says more than the spectral one (mean lead at the end of training, "
            "sizes above 1)",
            "Figure 16",
            float(
                np.mean(
                    [
                        t[1, 1, i, 0] - t[0, 1, i, 0]
                        for t in with_relu.values()
                        for i, n in enumerate(c.relu_ends)
                        if n > 1
                    ]
                )
            ),
            0.0,
        ),
    )


def _pairs(linear: dict[str, Any], alignments: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(alignments[name], norm_correlations(m, m.sharpness)) for name, m in linear.items()]


def figures(result: Outcome) -> dict[str, Any]:
    """Figure 14, 15 and 16."""
    ends = result.config["ends"]
    figure, axes = new_figure(2, 3, width=4.0, height=3.0, sharey=True)
    for column, (name, table) in enumerate(result.data["alignment"].items()):
        for t, moment in enumerate(MOMENTS):
            for k, norm in enumerate(NORMS):
                axes[t, column].plot(ends, table[k, t], marker="o", ms=3, color=CYCLE[k], label=norm)
            axes[t, column].set(title=f"{name}, {moment}", xlabel="input and output size", ylim=(-1.05, 1.05))
            axes[t, 0].set_ylabel("Pearson r, sharpness and alignment", fontsize=8)
    axes[0, 2].legend(fontsize=7)
    return {
        "fig14": draw_norm_correlations(result.data["ntp"], ends, "sharpness"),
        "fig15": figure,
        "fig16": draw_norm_correlations(result.data["relu"], result.config["relu_ends"], "sharpness"),
    }


EXPERIMENT = Experiment(
    name="cracking.fig14_16",
    title="Sharpness against norms (NTP, ReLU) and alignments",
    source="Cracking the Hessian, Figures 14-16",
    quick=Config(),
    paper=Config(
        width=100,
        ends=(1, 2, 5, 10, 20, 50, 100),
        networks=200,
        steps=4000,
        relu_ends=(1, 2, 5, 10, 20),
        relu_samples=1024,
        relu_steps=2000,
    ),
    run=run,
    figures=figures,
)
