"""Figure 8: the paired outliers of linear and ReLU networks along training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...closed_form import learning_phase, linear_network, relu_network
from ...measure import Array
from ...plots.style import ACCENT, MEASURED, MUTED, THEORY, new_figure
from ...results.claims import Experiment, Outcome
from ...rng import Rng
from ._claims import at_least, at_most, outcome


@dataclass(frozen=True)
class Config:
    """Gradient descent with momentum on a wedge: y = right x for x > 0 and left x for x < 0."""

    width: int = 10
    samples: int = 50
    steps: int = 120
    rate: float = 0.18
    momentum: float = 0.9
    right: float = 1.5
    left: float = -0.5
    seed: int = 0


def _descend(config: Config, x: Array, y: Array, w: Array, v: Array, relu: bool) -> list[tuple[Array, Array]]:
    """Every iterate (w, v)."""
    path, speed = [(w, v)], (np.zeros_like(w), np.zeros_like(v))
    for _ in range(config.steps):
        before = np.outer(x, v)
        gate = before > 0 if relu else np.ones_like(before, dtype=bool)
        residual = (before * gate) @ w - y
        slopes = (residual @ (before * gate) / len(x), w * ((residual * x) @ gate) / len(x))
        speed = (
            config.momentum * speed[0] - config.rate * slopes[0],
            config.momentum * speed[1] - config.rate * slopes[1],
        )
        w, v = w + speed[0], v + speed[1]
        path.append((w, v))
    return path


def run(config: Config) -> Outcome:
    """Train both networks from the same start; closed-form spectrum at every step."""
    rng = Rng(config.seed).child("fig8").numpy()
    x = rng.uniform(-1, 1, size=config.samples)
    y = np.where(x > 0, config.right, config.left) * x
    w, v = rng.normal(size=(2, config.width)) * 0.4
    linear = _descend(config, x, y, w, v, relu=False)
    gated = _descend(config, x, y, w, v, relu=True)
    flat = [linear_network(a, b, x, y) for a, b in linear]
    pairs = np.array([s.outliers for s in flat])
    traces = np.array([s.trace for s in flat])
    phases = [learning_phase(a, b, x, y) for a, b in linear]
    signs = [
        (phase.name == "late") == (phase.smaller_outlier >= 0)
        for phase in phases
        if abs(phase.smaller_outlier) > 1e-9 * traces[0]
    ]
    cells = np.array([_positive_cell(relu_network(a, b, x, y)) for a, b in gated])
    cell_trace = np.array(
        [np.sum(x[x > 0] ** 2) / len(x) * (a[b > 0] @ a[b > 0] + b[b > 0] @ b[b > 0]) for a, b in gated]
    )
    still = all(np.array_equal(b > 0, gated[0][1] > 0) for _, b in gated)
    both = np.concatenate([pairs.sum(axis=1) / traces - 1, cells.sum(axis=1) / cell_trace - 1])
    return outcome(
        "fig8",
        config,
        {
            "linear": pairs,
            "linear_trace": traces,
            "relu": cells,
            "relu_trace": cell_trace,
            "ratio": np.array([phase.ratio for phase in phases]),
            "cells_fixed": still,
        },
        at_most(
            "At every step the two outliers sum to the trace (ReLU: of the positive cell; largest relative gap)",
            "Figure 8",
            float(np.abs(both).max()),
            1e-12,
        ),
        at_least(
            "The smaller outlier is non-negative exactly while 1/3 <= <w, v>/θ* <= 1, through every oscillation (share of steps)",
            "Appendix C, corrected",
            float(np.mean(signs)),
            1.0,
        ),
        at_most(
            "At the end the pair is (trace, 0): the Hessian is of rank one (smaller over larger outlier)",
            "Appendix C",
            float(abs(pairs[-1, 0] / pairs[-1, 1])),
            0.05,
        ),
    )


def _positive_cell(spectrum: Any) -> list[float]:
    return [v for v, s in zip(spectrum.outliers, spectrum.outlier_sources, strict=True) if s == "+ cell"]


def figures(result: Outcome) -> dict[str, Any]:
    """The pair and its sum along training."""
    figure, axes = new_figure(1, 2, width=5.0)
    for axis, name, title in zip(
        axes, ("linear", "relu"), ("linear network", "ReLU network, positive cell"), strict=True
    ):
        pair, trace = result.data[name], result.data[f"{name}_trace"]
        axis.plot(pair[:, 1], color=MEASURED, label="larger outlier")
        axis.plot(pair[:, 0], color=ACCENT, label="smaller outlier")
        axis.plot(pair.sum(axis=1), color=MUTED, lw=3, alpha=0.6, label="their sum")
        axis.plot(trace, "--", color=THEORY, label="trace")
        axis.set(title=title, xlabel="step", ylabel="eigenvalue")
    axes[0].legend(fontsize=8)
    return {"fig8": figure}


EXPERIMENT = Experiment(
    name="cracking.fig8",
    title="Paired outliers along training",
    source="Cracking the Hessian, Figure 8",
    quick=Config(),
    paper=Config(steps=400),
    run=run,
    figures=figures,
)
