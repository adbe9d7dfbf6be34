"""Figures 17-22: deep networks; sharpness against single weight matrices and against products with one knocked out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...measure import Array
from ...plots.style import ACCENT, MEASURED, THEORY, new_figure
from ...results.claims import Experiment, Outcome
from ...rng import Rng
from ._claims import at_least, at_most, outcome
from ._ensemble import (
    PARAMETRIZATIONS,
    Weights,
    initial_weights,
    learning_rates,
    mean_squared_loss,
    pearson,
    sharpness,
    squared_norms,
    teacher_data,
    train,
    widths_of,
)

MOMENTS = ("initialisation", "end of training")
QUANTITIES = ("knocked-out product", "single matrix")


@dataclass(frozen=True)
class Config:
    """Depths and end sizes of linear networks; ReLU networks have ends of size 1, as in the paper."""

    width: int = 16
    depths: tuple[int, ...] = (2, 4)
    ends: tuple[int, ...] = (1, 4)
    networks: int = 60
    samples: int = 1024
    steps: int = 120
    relu_samples: int = 64
    seed: int = 0


def knocked_out(weights: Weights, layer: int) -> Tensor:
    """Π_{j ≠ layer} W_j, later layers on the left: (networks, ·, ·)."""
    return reduce(lambda so_far, w: w @ so_far, weights[:layer] + weights[layer + 1 :])


def fitted_sharpness(weights: Weights, variance: float, scale: float) -> Array:
    """σ² Σ_b |W_B ... W_{b+1}|² |W_{b-1} ... W_1|²: λ_max of a fitted linear network with scalar input and output."""
    total = torch.zeros(weights[0].shape[0], dtype=torch.float64)
    for layer in range(len(weights)):
        sides = [part for part in (weights[:layer], weights[layer + 1 :]) if part]
        chains = [reduce(lambda so_far, w: w @ so_far, side) for side in sides]
        total += torch.stack([(chain**2).sum((1, 2)) for chain in chains]).prod(0)
    return np.asarray((variance * scale * total).numpy())


def _family(config: Config, parametrization: str, depth: int, ends: int, relu: bool) -> dict[str, Any]:
    """Pearson's r (moment, quantity, layer), the median relative loss left, and the error of the fitted rule."""
    rng = Rng(config.seed).child("deep", relu, depth, ends)
    samples = config.relu_samples if relu else config.samples
    x, y = teacher_data(rng.child("data"), samples, ends, relu)
    widths = widths_of(depth, config.width, ends)
    start = initial_weights(rng.child(parametrization), config.networks, widths, parametrization)
    loss = mean_squared_loss(x, y, widths, parametrization, relu)
    end = train(start, loss, learning_rates(widths, parametrization), config.steps)
    tables = []
    for weights in (start, end):
        top = sharpness(weights, loss).numpy()
        products = [squared_norms(knocked_out(weights, b))["spectral"] for b in range(depth)]
        singles = [squared_norms(w)["Frobenius" if relu else "spectral"] for w in weights]
        tables.append([[pearson(top, q) for q in products], [pearson(top, q) for q in singles]])
    rule = fitted_sharpness(end, float((x**2).mean()), 1 / prod(widths[:-1]) if parametrization == "NTP" else 1.0)
    floor = 0.0 if relu else float(((x @ torch.linalg.lstsq(x, y).solution - y) ** 2).sum() / (2 * len(x)))
    return {
        "correlation": np.array(tables),
        "progress": float(((loss(end) - floor) / (loss(start) - floor)).median()),
        "rule_error": float(np.median(np.abs(rule / top - 1))) if ends == 1 and not relu else 0.0,
    }


def run(config: Config) -> Outcome:
    """Train every family, then correlate its sharpness with each candidate."""
    cases = [("linear", ends) for ends in config.ends] + [("ReLU", 1)]
    families: dict[str, dict[str, Any]] = {}
    for kind, ends in cases:
        for name in PARAMETRIZATIONS:
            for depth in config.depths:
                key = f"{kind}, size {ends}, {name}, depth {depth}"
                families[key] = _family(config, name, depth, ends, kind == "ReLU")
    tables = {key: family["correlation"] for key, family in families.items()}

    def without_last(kind: str, ends: int, *names: str) -> Array:
        """r of the product without the last matrix at the end of training, for each depth and parametrization."""
        return np.array(
            [tables[f"{kind}, size {ends}, {p}, depth {d}"][1, 0, -1] for p in names for d in config.depths]
        )

    large = config.ends[-1]
    rivals = [tables[f"linear, size 1, {p}, depth {d}"][1, 0, :-1].max() for p in ("SP", "muP") for d in config.depths]
    return outcome(
        "fig17_22",
        config,
        {"correlation": tables, "progress": {key: family["progress"] for key, family in families.items()}},
        at_most(
            "Why: with scalar input and output a fitted linear network has sharpness exactly σ² times the SUM over layers of "
            "|W_B ... W_{b+1}|² |W_{b-1} ... W_1|² (worst median relative error)",
            "Figure 17, explained",
            max(family["rule_error"] for family in families.values()),
            0.01,
        ),
        at_least(
            "Linear, scalar ends, trained, SP and muP: the product without the last matrix has the largest correlation with "
            "the sharpness of all knocked-out products (smallest lead)",
            "Figure 17",
            float((without_last("linear", 1, "SP", "muP") - rivals).min()),
            0.0,
        ),
        at_least(
            "... and that correlation is strong (smallest r)",
            "Figure 17",
            float(without_last("linear", 1, "SP", "muP").min()),
            0.5,
        ),
        at_most(
            "It is not strong for all parametrizations: under NTP all layers share the sum, and r stays below",
            "Figure 17, which says across parametrizations",
            float(without_last("linear", 1, "NTP").max()),
            0.8,
        ),
        at_least(
            f"It persists at input size {large} under muP (smallest r)",
            "Figure 18",
            float(without_last("linear", large, "muP").min()),
            0.7,
        ),
        at_most(
            "With ReLU it is weaker than in linear networks (mean r, ReLU minus linear, scalar ends, SP and muP)",
            "Figure 21",
            float(without_last("ReLU", 1, "SP", "muP").mean() - without_last("linear", 1, "SP", "muP").mean()),
            -0.2,
        ),
    )


def figures(result: Outcome) -> dict[str, Any]:
    """One figure for each network kind and end size: r at the end of training against depth."""
    tables, depths = result.data["correlation"], result.config["depths"]
    kinds = list(dict.fromkeys(tuple(key.split(", ")[:2]) for key in tables))
    drawn = {}
    for kind, size in kinds:
        figure, axes = new_figure(2, 3, width=4.0, height=3.0, sharey=True)
        for column, name in enumerate(PARAMETRIZATIONS):
            for q, quantity in enumerate(QUANTITIES):
                axis = axes[q, column]
                found = [tables[f"{kind}, {size}, {name}, depth {depth}"][1, q] for depth in depths]
                for place, color, label in ((0, MEASURED, "first layer"), (-1, THEORY, "last layer")):
                    axis.plot(depths, [t[place] for t in found], marker="o", ms=4, color=color, label=label)
                middle = [(d, r) for d, t in zip(depths, found, strict=True) for r in t[1:-1]]
                if middle:
                    axis.scatter(*zip(*middle, strict=True), s=12, color=ACCENT, label="layers between")
                axis.set(title=f"{name}: {quantity}", xlabel="depth", ylim=(-1.05, 1.05), xticks=depths)
                axes[q, 0].set_ylabel("Pearson r with sharpness, trained", fontsize=8)
        axes[0, 2].legend(fontsize=7)
        figure.suptitle(f"{kind} networks, input and output {size}")
        drawn[f"fig17_22_{kind}_{size.replace(' ', '_')}"] = figure
    return drawn


EXPERIMENT = Experiment(
    name="cracking.fig17_22",
    title="Sharpness of deep networks against knocked-out products",
    source="Cracking the Hessian, Figures 17-22",
    quick=Config(),
    paper=Config(width=100, depths=(2, 3, 4, 5, 6), ends=(1, 10), networks=200, steps=4000, relu_samples=1024),
    run=run,
    figures=figures,
)
