"""Figure 8: the paired outliers of linear and ReLU networks along training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...closed_form import learning_phase, linear_network, relu_network
from ...measure import Array
from ...plots.style import ACCENT, MEASURED, MUTED, THEORY, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import at_least, equal, less
from ..recipe import Findings, experiment
from . import PAPER

CLAIMS = (
    equal("paired", f"{PAPER}, Figure 8, linear", "At every step the two eigenvalues of the numerical Hessian nearest to the pair sum to "
          "its trace (relative gap, every tenth step)", 1e-6),
    equal("paired-relu", f"{PAPER}, Figure 8, ReLU", "... and those of the positive cell to the trace of its block of the numerical "
          "Hessian (largest relative gap, every tenth step)", 1e-9),
    equal("gradient-form", f"{PAPER}, after Theorem 3.2", "λ ∇ℓ/δx + δx θ is an eigenvector of both outliers wherever the slope is not zero "
          "(largest |Hz - λz| / |H||z| with H by complex steps, every tenth step)", 1e-8),
    at_least("phases", f"{PAPER}, Appendix C", "The smaller outlier is non-negative exactly while 1/3 <= <w, v>/θ* <= 1 (share of "
             "steps)", 1.0, "“exactly” in the corrected statement: every step", corrected=True),
    less("rank-one", f"{PAPER}, Appendix C", "At the end the pair tends to (trace, 0) (smaller over larger outlier, last step "
         "over half of the steps)", 1, "a limit: the quotient falls"),
)  # fmt: skip


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
        slopes = _slopes(x, y, w, v, relu)
        speed = (
            config.momentum * speed[0] - config.rate * slopes[0],
            config.momentum * speed[1] - config.rate * slopes[1],
        )
        w, v = w + speed[0], v + speed[1]
        path.append((w, v))
    return path


def _slopes(x: Array, y: Array, w: Any, v: Any, relu: bool) -> tuple[Any, Any]:
    """Of the mean of half of the squared errors, in w and in v; also at complex points."""
    before = np.outer(x, v)
    gate = before.real > 0 if relu else np.ones(before.shape, dtype=bool)
    residual = (before * gate) @ w - y
    return residual @ (before * gate) / len(x), w * ((residual * x) @ gate) / len(x)


def run(config: Config) -> Findings:
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
    looks = range(0, len(linear), 10)
    return {
        "linear": pairs,
        "linear_trace": traces,
        "relu": cells,
        "relu_trace": cell_trace,
        "ratio": np.array([phase.ratio for phase in phases]),
        "cells_fixed": still,
    }, {
        "paired": max(_pair_gap(_hessian(x, y, *linear[k], relu=False), pairs[k]) for k in looks),
        "paired-relu": max(_pair_gap(_cell(x, y, *gated[k]), cells[k]) for k in looks),
        "gradient-form": max(_gradient_form(x, y, *linear[k], pairs[k]) for k in looks),
        "phases": float(np.mean(signs)),
        "rank-one": float(
            abs(pairs[-1, 0] / pairs[-1, 1]) / abs(pairs[len(pairs) // 2, 0] / pairs[len(pairs) // 2, 1])
        ),
    }


def _hessian(x: Array, y: Array, w: Array, v: Array, relu: bool) -> Array:
    """In order (w, v), by complex steps of the gradient: exact to rounding, and no formula of the paper in it."""

    def slope(point: Any) -> Any:
        a, b = np.split(point, 2)
        return np.concatenate(_slopes(x, y, a, b, relu))

    point = np.concatenate([w, v])
    rows = np.array([np.imag(slope(point + 1e-30j * e)) / 1e-30 for e in np.eye(point.size)])
    return np.asarray(0.5 * (rows + rows.T))


def _cell(x: Array, y: Array, w: Array, v: Array) -> Array:
    """The block of the units that are open for positive inputs."""
    own = np.tile(v > 0, 2)
    return _hessian(x, y, w, v, relu=True)[np.ix_(own, own)]


def _pair_gap(hessian: Array, outliers: Array) -> float:
    """How far the two eigenvalues of a numerical Hessian that lie nearest to the outliers are from its trace."""
    values = np.linalg.eigvalsh(hessian)
    pair = [values[np.abs(values - outlier).argmin()] for outlier in outliers]
    return float(abs(sum(pair) / values.sum() - 1))


def _gradient_form(x: Array, y: Array, w: Array, v: Array, outliers: Array) -> float:
    """The residual of λ ∇ℓ/δx + δx θ over both outliers; 0 where δx is rounding."""
    slope = float(((w @ v) * x - y) @ x / len(x))
    if abs(slope) < 1e-6 * outliers.max():
        return 0.0
    hessian, gradient, point = _hessian(x, y, w, v, relu=False), slope * np.concatenate([v, w]), np.concatenate([w, v])
    found = []
    for outlier in outliers:
        z = outlier / slope * gradient + slope * point
        found.append(np.linalg.norm(hessian @ z - outlier * z) / (outliers.max() * np.linalg.norm(z)))
    return float(max(found))


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


EXPERIMENT = experiment(
    __name__,
    "Paired outliers along training",
    "Cracking the Hessian, Figure 8, Theorem 3.2",
    quick=Config(),
    default=Config(steps=400),
    paper=Config(steps=400),
    chosen="the wedge (slopes 1.5 and -0.5), 50 examples, the initial weights and 400 steps.",
)
