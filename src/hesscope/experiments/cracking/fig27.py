"""Figure 27: progressive sharpening and the edge of stability in a scalar self-attention layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...closed_form import SOFTMAX, self_attention
from ...measure import Array
from ...plots.style import ACCENT, MEASURED, THEORY, new_figure
from ...results.claims import Experiment, Outcome
from ...rng import Rng
from ._claims import at_least, at_most, outcome


@dataclass(frozen=True)
class Config:
    """Gradient descent on one sequence (x1, x2) whose target is its reversal."""

    sequence: tuple[float, float] = (0.95, -0.85)
    key_width: int = 2
    rate: float = 2.3
    deviation: float = 0.1
    steps: int = 2500
    seed: int = 0
    scan: tuple[tuple[float, float], ...] = (
        (1.0, 0.5),
        (0.5, -0.4),
        (0.8, -0.6),
        (0.95, -0.85),
        (1.0, -0.75),
        (1.2, -1.2),
    )
    scan_steps: int = 1500


def _descend(config: Config, sequence: tuple[float, float], steps: int, watch: int) -> dict[str, Array]:
    """Loss, sharpness, trace, residual and norms at the last `watch` steps; nothing when the loss passes 10³."""
    rng = Rng(config.seed).child("fig27").numpy()
    x, root = np.array(sequence), config.key_width**0.5
    y = x[::-1].copy()
    value, (queries, keys) = config.deviation * rng.normal(), config.deviation * rng.normal(size=(2, config.key_width))
    rows: list[list[float]] = []
    for step in range(steps):
        attention = SOFTMAX.value(queries @ keys / root * np.outer(x, x))
        mixed = attention @ x
        spread = np.sum(attention * (x - mixed[:, None]) ** 2, axis=1)
        residual = value * mixed - y
        loss = residual @ residual / (2 * x.size)
        if loss > 1e3:
            return {}
        if step >= steps - watch:
            spectrum = self_attention(value, queries, keys, x, y)
            lengths = [float(np.linalg.norm(p)) for p in (residual, np.atleast_1d(value), queries, keys)]
            rows.append([loss, spectrum.sharpness, spectrum.trace, *lengths])
        by_value, by_score = residual @ mixed / x.size, value * residual @ (x * spread) / (x.size * root)
        value, queries, keys = (
            value - config.rate * by_value,
            queries - config.rate * by_score * keys,
            keys - config.rate * by_score * queries,
        )
    names = ("loss", "sharpness", "trace", "residual", "value", "queries", "keys")
    return dict(zip(names, np.array(rows).T, strict=True))


def run(config: Config) -> Outcome:
    """One long run, and shorter ones on other sequences."""
    path = _descend(config, config.sequence, config.steps, config.steps)
    edge = 2.0 / config.rate
    above = np.flatnonzero(path["sharpness"] > edge)
    crossing = int(above[0]) if above.size else config.steps // 2
    late = path["sharpness"][-config.steps // 5 :]
    after = slice(crossing, None)
    moves = np.corrcoef(np.diff(path["sharpness"][after]), np.diff(path["trace"][after]))[0, 1]
    kinds = {str(s): _kind(_descend(config, s, config.scan_steps, 100), edge) for s in config.scan}
    rising = path["sharpness"][crossing // 2 : crossing]
    return outcome(
        "fig27",
        config,
        {"path": path, "edge": edge, "crossing": crossing, "kinds": kinds},
        at_most(
            "Training starts below the edge (initial sharpness over 2/rate)",
            "Figure 27",
            float(path["sharpness"][0] / edge),
            0.5,
        ),
        at_least(
            "Progressive sharpening: the sharpness rises towards the edge (share of rising steps, second half of the approach)",
            "Figure 27",
            float(np.mean(np.diff(rising) > 0)),
            0.9,
        ),
        at_most(
            "Edge of stability: afterwards the sharpness stays around 2/rate (relative gap of the mean over the last fifth)",
            "Figure 27",
            float(abs(late.mean() / edge - 1)),
            0.03,
        ),
        at_most(
            "... and the loss stays far below its start, but on a plateau: it does not go on falling (mean over the last fifth, "
            "over the initial loss)",
            "Figure 27, which says it keeps decreasing",
            float(path["loss"][-config.steps // 5 :].mean() / path["loss"][0]),
            0.01,
        ),
        at_least(
            "The loss is not monotone there (largest rise from one step to the next, relative)",
            "Figure 27",
            float(np.max(path["loss"][after][1:] / path["loss"][after][:-1]) - 1),
            1e-3,
        ),
        at_most(
            "At the edge sharpness and trace move in opposite directions (correlation of their steps)",
            "Figure 27",
            float(moves),
            -0.5,
        ),
        at_least(
            "The edge is not universal: of the scanned sequences others end below it or diverge (number of other fates)",
            "D.2, which gives no data",
            float(len(set(kinds.values()) - {"edge of stability"})),
            2.0,
        ),
    )


def _kind(path: dict[str, Array], edge: float) -> str:
    """What became of a run, by its last hundred steps."""
    if not path:
        return "diverges"
    late = path["sharpness"]
    if abs(late.mean() / edge - 1) < 0.03:
        return "edge of stability"
    return "settles below" if late.mean() < edge else "stays above"


def figures(result: Outcome) -> dict[str, Any]:
    """Sharpness against 2/rate, trace, loss and residual, norms."""
    path, edge = result.data["path"], result.data["edge"]
    figure, axes = new_figure(2, 2, width=5.0, height=3.2)
    axes[0, 0].plot(path["sharpness"], color=MEASURED, lw=1, label="sharpness")
    axes[0, 0].axhline(edge, color=THEORY, ls="--", label="2 / learning rate")
    axes[0, 1].semilogy(path["loss"], color=MEASURED, lw=1, label="loss")
    axes[0, 1].semilogy(path["residual"], color=ACCENT, lw=1, label="|residual|")
    axes[1, 0].plot(path["trace"], color=MEASURED, lw=1, label="trace")
    for name, label in (("value", r"$|w_V|$"), ("queries", r"$|w_Q|$"), ("keys", r"$|w_K|$")):
        axes[1, 1].plot(path[name], lw=1, label=label)
    for axis, label in zip(axes.flat, ("sharpness", "loss, residual", "trace of H", "norm"), strict=True):
        axis.set(xlabel="step of gradient descent", ylabel=label)
        axis.legend(fontsize=8)
    return {"fig27": figure}


EXPERIMENT = Experiment(
    name="cracking.fig27",
    title="Edge of stability in self-attention",
    source="Cracking the Hessian, Figure 27",
    quick=Config(),
    paper=Config(steps=10_000, scan_steps=5_000),
    run=run,
    figures=figures,
)
