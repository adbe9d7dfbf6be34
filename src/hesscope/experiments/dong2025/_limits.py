"""Realisations of block norms beside their limits: the shared parts of Figures 8 and 9."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...measure import Array
from ...plots.style import ACCENT, MEASURED, THEORY, new_figure
from ...results.claims import Outcome
from ...rmt.blocks.limits import BlockLimit
from ...rng import Rng
from ..declared import Declared, Measured, at_most, less, standard_errors

SHRINK = 4  # the smaller size that shows, and removes, what is left of order 1/d


Draw = Callable[[np.random.Generator, Array, Array, int], Sequence[Sequence[float]]]


def realised(name: str, config: Any, draw: Draw) -> tuple[Array, Array]:
    """(part, C, realisation, 2) at the config's size and at 1/SHRINK of it.

    `draw(generator, x, (XᵀX)², classes)` gives both norms of every part; one X serves all C, since its squared Gram matrix is
    the costly part.
    """
    found = []
    for shrink in (1, SHRINK):
        d, n = config.inputs // shrink, config.examples // shrink
        rows: list[Any] = []
        for k in range(config.realisations):
            generator = Rng(config.seed).child(name, d, k).numpy()
            x = generator.standard_normal((d, n))
            squared_gram = (x.T @ x) ** 2
            rows.append([draw(generator, x, squared_gram, classes) for classes in config.classes])
        found.append(np.array(rows).transpose(2, 1, 0, 3))
    return found[0], found[1]


def hidden_layer(generator: np.random.Generator, x: Array, hidden: int, classes: int) -> tuple[Array, Array]:
    """σ(Wx) of every example, and V, at LeCun initialisation."""
    d = len(x)
    active = np.maximum(x.T @ generator.standard_normal((d, hidden)) / np.sqrt(d), 0.0)
    return active, generator.standard_normal((classes, hidden)) / np.sqrt(hidden)


def squared_norm(squared_gram: Array, weights: Array) -> float:
    """||(1/N) X diag(a) X^T||²_F = a^T (K o K) a / N², K = X^T X: no block is formed."""
    total = float(weights @ (squared_gram @ weights))
    return total / float(weights.size) ** 2


def summary(classes: tuple[int, ...], realisations: Array, smaller: Array, limits: list[BlockLimit]) -> dict[str, Any]:
    """Everything the figure needs; `realisations` is (C, repeats, 2), `smaller` the same at 1/SHRINK of the size."""
    return {
        "classes": np.array(classes),
        "realisations": realisations,
        "smaller": smaller,
        "predicted": np.array([[limit.diagonal[0], limit.off_diagonal[0]] for limit in limits]),
        "predicted_error": np.array([[limit.diagonal[1], limit.off_diagonal[1]] for limit in limits]),
        "limit": np.array([limits[0].large_class_limit.diagonal, limits[0].large_class_limit.off_diagonal]),
        "powers": np.array(
            [-limits[0].large_class_limit.diagonal_power, -limits[0].large_class_limit.off_diagonal_power]
        ),
    }


def declared(source: str, names: tuple[str, str], rate: str) -> tuple[Declared, ...]:
    """Means at every C, the approach of the MEASURED means to the constant of many classes, and the rate of the ratio."""
    claims = []
    for key, name in zip(("diagonal", "off-diagonal"), names, strict=True):
        claims += [
            standard_errors(
                key,
                source,
                f"At every C the mean of {name}, extrapolated in 1/d, is its finite-C limit (largest deviation)",
            ),
            less(
                f"{key}-approach",
                source,
                f"Scaled by its power of C, the measured mean of {name} approaches the (corrected) "
                "constant as C grows (relative distance at the largest C over that at the smallest)",
                1,
                "“approach the green lines”: nearer at the end than at the start",
            ),
        ]
    return (
        *claims,
        standard_errors("slope", source, f"The ratio of {names[1]} to {names[0]} falls with the slope that the finite-C limits "
                        "have over this range of C"),
        at_most("rate", source, f"That slope can be told from half of the paper's rate {rate} (its standard error over half of "
                "the rate)", 0.25, "4 standard errors fit into half of the rate", basis="sampling theory"),
    )  # fmt: skip


def measured(data: dict[str, Any]) -> dict[str, Measured]:
    """The numbers of these claims."""
    count, powers = data["classes"].astype(np.float64), data["powers"]
    predicted = data["predicted"]
    mean, error = _extrapolated(data["realisations"], data["smaller"])
    scores = np.abs(mean - predicted) / np.hypot(error, data["predicted_error"])
    scale = count[:, None] ** powers / data["limit"]
    away = np.abs(mean * scale - 1)
    begin, noise_there = np.abs(predicted[0] * scale[0] - 1), error[0] * scale[0]
    found: dict[str, Measured] = {}
    for k, key in enumerate(("diagonal", "off-diagonal")):
        found[key] = float(scores[:, k].max())
        # u_ij is its constant at every C: two distances that are noise have a quotient that says nothing.
        told = begin[k] > 4 * noise_there[k]
        way = "at the smallest C the limit is within 4 standard errors of the constant: no way to go"
        found[f"{key}-approach"] = float(away[-1, k] / away[0, k]) if told else way
    logs = np.log(count) - np.log(count).mean()
    relative = np.hypot(error[:, 0] / mean[:, 0], error[:, 1] / mean[:, 1])
    noise = float(np.sqrt(((logs * relative) ** 2).sum()) / (logs**2).sum())  # of a least-squares slope
    ratio, expected = mean[:, 1] / mean[:, 0], predicted[:, 1] / predicted[:, 0]
    slope, theory = (float(np.polyfit(logs, np.log(r), 1)[0]) for r in (ratio, expected))
    found["slope"] = (abs(slope - theory) / noise, f"{slope:.3f} against {theory:.3f} ± {noise:.3f}")
    found["rate"] = noise / (0.5 * abs(float(powers[0] - powers[1])))
    return found


def _extrapolated(full: Array, smaller: Array) -> tuple[Array, Array]:
    """The mean over realisations at d -> ∞ from two sizes, assuming an error of order 1/d, and its standard error."""
    mean = (SHRINK * full.mean(1) - smaller.mean(1)) / (SHRINK - 1)
    variance = (SHRINK**2 * full.var(1, ddof=1) + smaller.var(1, ddof=1)) / (SHRINK - 1) ** 2
    return mean, np.sqrt(variance / full.shape[1])


def draw(outcome: Outcome, labels: tuple[str, str]) -> dict[str, Any]:
    """Three panels: both scaled norms with realisations, limit curve and constant, and their ratio."""
    data = outcome.data
    count = data["classes"].astype(np.float64)
    figure, axes = new_figure(1, 3, width=3.6, height=3.6)
    for k, axis in enumerate(axes[:2]):
        scale = count ** data["powers"][k]
        cloud = data["realisations"][:, :, k] * scale[:, None]
        repeated = np.repeat(count, cloud.shape[1])
        axis.plot(repeated, cloud.ravel(), ".", color=MEASURED, alpha=0.12, ms=4, label="realisations")
        error = cloud.std(1, ddof=1) / np.sqrt(cloud.shape[1])
        axis.errorbar(count, cloud.mean(1), 2 * error, fmt="o", color=MEASURED, ms=4, label="their mean ± 2 s.e.")
        axis.plot(count, data["predicted"][:, k] * scale, color=THEORY, label="limit at C classes")
        axis.axhline(data["limit"][k], color=ACCENT, ls="--", label="limit of many classes")
        axis.set(xscale="log", xlabel="classes C", ylabel=labels[k])
        axis.set_ylim(0, 1.15 * max(float(np.quantile(cloud, 0.995)), float(data["limit"][k])))
    axes[0].legend(fontsize=8)
    mean = data["realisations"].mean(1)
    axes[2].plot(count, mean[:, 1] / mean[:, 0], "o", color=MEASURED, ms=4, label="ratio of means")
    axes[2].plot(count, data["predicted"][:, 1] / data["predicted"][:, 0], color=THEORY, label="limit at C classes")
    far = data["limit"][1] / data["limit"][0] * count ** (data["powers"][0] - data["powers"][1])
    axes[2].plot(count, far, "--", color=ACCENT, label=f"rate C^{data['powers'][0] - data['powers'][1]}")
    axes[2].set(xscale="log", yscale="log", xlabel="classes C", ylabel="off-diagonal / diagonal")
    axes[2].legend(fontsize=8)
    return {outcome.name: figure}
