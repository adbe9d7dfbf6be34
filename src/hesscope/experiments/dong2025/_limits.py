"""Realisations of block norms beside their limits: the shared parts of Figures 8 and 9."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...measure import Array
from ...plots.style import ACCENT, MEASURED, THEORY, new_figure
from ...results.claims import Claim, Outcome
from ...rmt.blocks.limits import BlockLimit

SHRINK = 4  # the smaller size that shows, and removes, what is left of order 1/d


def softmax(logits: Array) -> Array:
    """Along the last axis."""
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(p / p.sum(-1, keepdims=True))


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


def claims(data: dict[str, Any], source: str, names: tuple[str, str]) -> tuple[Claim, ...]:
    """Means at every C, the approach to the limit of many classes, and the rate of the ratio."""
    count, powers = data["classes"].astype(np.float64), data["powers"]
    predicted = data["predicted"]
    mean, error = _extrapolated(data["realisations"], data["smaller"])
    allowed = 4 * np.hypot(error, data["predicted_error"])
    found = []
    for k, name in enumerate(names):
        worst = float(np.max(np.abs(mean - predicted)[:, k] / allowed[:, k]))
        found.append(
            Claim(
                f"At every C the mean of {name}, extrapolated in 1/d, is its finite-C limit within 4 standard errors.",
                source,
                "deviation / allowance <= 1",
                f"{worst:.2f}",
                worst <= 1,
            )
        )
        gap = np.abs(predicted[:, k] * count ** powers[k] / data["limit"][k] - 1)
        found.append(
            Claim(
                f"C^{powers[k]} {name} approaches its (corrected) constant {data['limit'][k]:.4g} as C grows.",
                source,
                "relative gap falls with C",
                ", ".join(f"{g:.3f}" for g in gap),
                bool((np.diff(gap) < 0).all()),
            )
        )
    ratio, expected = mean[:, 1] / mean[:, 0], predicted[:, 1] / predicted[:, 0]
    slope, theory = (float(np.polyfit(np.log(count), np.log(r), 1)[0]) for r in (ratio, expected))
    noise = float(np.max(np.hypot(error[:, 0] / mean[:, 0], error[:, 1] / mean[:, 1])))
    margin = 4 * noise / float(np.ptp(np.log(count)))
    rate = powers[0] - powers[1]
    found.append(
        Claim(
            f"The ratio of squared norms falls like C^{rate}, with the slope that the finite-C limits have over this range.",
            source,
            f"{theory:.3f} ± {margin:.3f}",
            f"{slope:.3f}",
            abs(slope - theory) <= margin,
        )
    )
    return tuple(found)


def _extrapolated(full: Array, smaller: Array) -> tuple[Array, Array]:
    """The mean over realisations at d -> ∞ from two sizes, assuming an error of order 1/d, and its standard error."""
    mean = (SHRINK * full.mean(1) - smaller.mean(1)) / (SHRINK - 1)
    variance = (SHRINK**2 * full.var(1, ddof=1) + smaller.var(1, ddof=1)) / (SHRINK - 1) ** 2
    return mean, np.sqrt(variance / full.shape[1])


def draw(outcome: Outcome, labels: tuple[str, str]) -> dict[str, Any]:
    """Three panels: both scaled norms with realisations, limit curve and constant, and their ratio."""
    data = outcome.data
    count = data["classes"].astype(np.float64)
    figure, axes = new_figure(1, 3, width=4.6, height=3.6)
    for k, axis in enumerate(axes[:2]):
        scale = count ** data["powers"][k]
        cloud = data["realisations"][:, :, k] * scale[:, None]
        repeated = np.repeat(count, cloud.shape[1])
        axis.plot(repeated, cloud.ravel(), ".", color=MEASURED, alpha=0.12, ms=4, label="realisations")
        axis.plot(count, cloud.mean(1), "o", color=MEASURED, ms=4, label="their mean")
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
