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
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import at_most, less, more
from ..recipe import Findings, experiment
from . import PAPER
from ._ensemble import CHOSEN, PARAMETRIZATIONS, Weights, pearson, sharpness, squared_norms, trained, widths_of

MOMENTS = ("initialisation", "end of training")
QUANTITIES = ("knocked-out product", "single matrix")

CLAIMS = (
    at_most("rule", f"{PAPER}, Figure 17, explained", "With scalar ends a fitted linear network has sharpness exactly σ² times the "
            "SUM over layers of |W_B ... W_{b+1}|² |W_{b-1} ... W_1|² (worst median relative error)", 0.01,
            "an equality at zero slope, which no descent reaches: a hundredth is what we take for reached", corrected=True,
            basis="convention"),
    *(
        more(f"last-{name}", f"{PAPER}, Figure 17", f"Linear, scalar ends, {name}, trained: of all knocked-out products the one "
             "without the last matrix correlates most with the sharpness (smallest lead of r over depths)", 0,
             "“Ŵ_B shows the strongest correlation with sharpness”, “across different depths and model parametrizations”")
        for name in PARAMETRIZATIONS
    ),
    more("well-NTP", f"{PAPER}, Figure 17", "Linear, scalar ends, NTP: that correlation is the larger part of what there is (r², "
         "mean over depths)", 0.5, "“correlate well ... across ... parametrizations”: more than half of the variance", basis="convention"),
    *(
        more(f"size-{name}", f"{PAPER}, Figure 18", f"Larger ends, {name}: the product without the last matrix still leads (mean "
             "lead of r over depths)", 0, "“partially persisting for larger input/output size under muP”, and the caption's "
             "“across ... parametrizations”")
        for name in PARAMETRIZATIONS
    ),
    *(
        less(f"single-{ends}", f"{PAPER}, Figure {figure}", f"Ends of size {ends}: the best single matrix correlates less than "
             "the product without the last (mean lead of r over depths above 2, SP and muP)", 0,
             "“among these quantities, Ŵ_B shows the strongest correlation”")
        for ends, figure in (("one", 19), ("many", 20))
    ),
    less("relu", f"{PAPER}, Figure 21", "ReLU: the product without the last matrix says less than in linear networks (mean r, ReLU "
         "minus linear, scalar ends, SP and muP)", 0, "the figure's lower curves"),
    more("relu-Frobenius", f"{PAPER}, Figure 22", "ReLU: the squared Frobenius norm of some single matrix correlates with the "
         "sharpness (largest r over layers, mean over depths, SP and muP)", 0, "“correlates most strongly”: positively"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Depths and end sizes of linear networks; ReLU networks have ends of size 1, as in the paper."""

    width: int = 16
    depths: tuple[int, ...] = (2, 4)
    ends: tuple[int, ...] = (1, 10)
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
    samples, widths = config.relu_samples if relu else config.samples, widths_of(depth, config.width, ends)
    family = trained(rng, parametrization, widths, config.networks, samples, config.steps, relu)
    tables = []
    for weights in (family.start, family.end):
        top = sharpness(weights, family.loss).numpy()
        products = [squared_norms(knocked_out(weights, b))["spectral"] for b in range(depth)]
        singles = [squared_norms(w)["Frobenius" if relu else "spectral"] for w in weights]
        tables.append([[pearson(top, q) for q in products], [pearson(top, q) for q in singles]])
    scale = 1 / prod(widths[:-1]) if parametrization == "NTP" else 1.0
    rule = fitted_sharpness(family.end, float((family.inputs**2).mean()), scale)
    return {
        "correlation": np.array(tables),
        "progress": float(family.progress.median()),
        "rule_error": float(np.median(np.abs(rule / top - 1))) if ends == 1 and not relu else 0.0,
    }


def run(config: Config) -> Findings:
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

    def lead(ends: int, name: str) -> Array:
        """r of that product minus the largest r of the others, for each depth."""
        rivals = [tables[f"linear, size {ends}, {name}, depth {d}"][1, 0, :-1].max() for d in config.depths]
        return np.asarray(without_last("linear", ends, name) - rivals)

    def single(ends: int) -> float:
        deep = [d for d in config.depths if d > 2] or list(config.depths)
        names = [f"linear, size {ends}, {p}, depth {d}" for p in ("SP", "muP") for d in deep]
        return float(np.mean([tables[key][1, 1].max() - tables[key][1, 0, -1] for key in names]))

    large = config.ends[-1]
    relu = [tables[f"ReLU, size 1, {p}, depth {d}"][1, 1].max() for p in ("SP", "muP") for d in config.depths]
    measured: dict[str, Any] = {
        "rule": max(family["rule_error"] for family in families.values()),
        "well-NTP": float((without_last("linear", 1, "NTP") ** 2).mean()),
        "single-one": single(1),
        "relu": float(without_last("ReLU", 1, "SP", "muP").mean() - without_last("linear", 1, "SP", "muP").mean()),
        "relu-Frobenius": float(np.mean(relu)),
    }
    measured |= {f"last-{name}": float(lead(1, name).min()) for name in PARAMETRIZATIONS}
    if large > 1:
        measured |= {f"size-{name}": float(lead(large, name).mean()) for name in PARAMETRIZATIONS}
        measured["single-many"] = single(large)
    return {"correlation": tables, "progress": {key: family["progress"] for key, family in families.items()}}, measured


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


EXPERIMENT = experiment(
    __name__,
    "Sharpness of deep networks against knocked-out products",
    "Cracking the Hessian, Figures 17-22",
    quick=Config(),
    default=Config(width=30, depths=(2, 3, 4, 5, 6), networks=100, steps=400),
    paper=Config(width=100, depths=(2, 3, 4, 5, 6), networks=200, steps=4000, relu_samples=1024),
    chosen=CHOSEN,
)
