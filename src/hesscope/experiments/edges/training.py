"""Along full-batch training: the largest eigenvalue as each optimiser sees it, against that optimiser's edge."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import THEORY, new_figure
from ...results.claims import Outcome
from ...step_stability import read_edge
from ..declared import at_most, more
from ..recipe import Experiment, Findings
from ._runs import INKS, FullBatchRun, checkpoints, runs_of, synthetic_of

SOURCE = "Cohen et al. 2021, 2022"
CLAIMS = (
    at_most("plain", SOURCE, "Gradient descent and momentum do not stay above their edge (median of lr·λ/edge over the second half of "
            "training, largest over runs)", 1.5, "“hovers just above 2/η”: not by half as much again", basis="convention"),
    at_most("adaptive", SOURCE, "Nor do RMSprop and Adam (the same)", 1.5, "the preconditioned sharpness hovers at its edge", basis="convention"),
    more("sharpening", SOURCE, "Runs come closer to their edge than they begin (share of the runs)", 0.5,
         "“progressive sharpening”: in most runs", basis="convention"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Which networks and optimisers, on how many examples each, for how many steps, read how often."""

    networks: tuple[str, ...] = ("mlp",)
    optimizers: tuple[str, ...] = ("gd", "momentum")
    examples: tuple[int, ...] = (400,)
    steps: int = 90
    every: int = 30
    seed: int = 0
    data_dir: str | None = None


def run(config: Config) -> Findings:
    """Every network under every optimiser; readings start from the last one's eigenvector."""
    runs = runs_of(config)
    found = {f"{run.task.name} {run.optimizer_name}": _readings(run, config) for run in runs}
    return {"runs": found, "synthetic": synthetic_of(runs)}, _measured(found)


def _readings(run: FullBatchRun, config: Config) -> dict[str, Any]:
    steps = tuple(range(config.every, config.steps + 1, config.every))
    ratios, errors, products = [], [], []
    last = None
    for _ in checkpoints(run, steps):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a reading that ran out of products says so by its error
            last = read_edge(run.problem(), run.optimizer, start=last, tol=0.02, max_products=60, rng=config.seed)
        ratios.append(last.ratio)
        errors.append(last.ratio_error)
        products.append(last.top.products)
    return {
        "steps": np.array(steps),
        "ratios": np.array(ratios),
        "errors": np.array(errors),
        "products": np.array(products),
        "losses": np.array(run.losses),
        "rate": run.rate,
    }


def _measured(runs: dict[str, Any]) -> dict[str, float]:
    late = {name: _late(r) for name, r in runs.items()}
    groups = {
        "plain": [value for name, value in late.items() if name.endswith(("gd", "momentum"))],
        "adaptive": [value for name, value in late.items() if not name.endswith(("gd", "momentum"))],
    }
    sharper = [float(r["ratios"].max()) > float(r["ratios"][0]) for r in runs.values()]
    return {key: max(found) for key, found in groups.items() if found} | {"sharpening": float(np.mean(sharper))}


def _late(readings: dict[str, Any]) -> float:
    ratios = readings["ratios"]
    return float(np.median(ratios[len(ratios) // 2 :]))


def figures(outcome: Outcome) -> dict[str, Any]:
    """One panel per network: lr·λ over the edge along training; below it the loss."""
    runs = outcome.data["runs"]
    networks = list(dict.fromkeys(name.split()[0] for name in runs))
    figure, axes = new_figure(2, len(networks), width=4.2, height=2.6, squeeze=False)
    for column, network in enumerate(networks):
        above, below = axes[0][column], axes[1][column]
        for (name, r), ink in zip([(n, r) for n, r in runs.items() if n.split()[0] == network], INKS, strict=False):
            above.errorbar(r["steps"], r["ratios"], r["errors"], fmt=".-", color=ink, lw=1, label=name.split()[1])
            below.plot(r["losses"], color=ink, lw=1)
        above.axhline(1.0, color=THEORY, lw=1, ls="--")
        above.set(title=network, yscale="log", ylabel="lr · λ / edge" if column == 0 else "")
        below.set(xlabel="step", yscale="log", ylabel="loss" if column == 0 else "")
        above.legend(fontsize=8)
    figure.suptitle("Full-batch runs and their edge (dashed)", fontsize=11)
    return {"training": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "Four optimisers along full-batch training, against their edges",
    SOURCE,
    quick=Config(),
    default=Config(optimizers=("gd", "momentum", "rmsprop", "adam"), examples=(1000,), steps=320, every=20),
    paper=Config(
        ("mlp", "lenet5", "gpt"), ("gd", "momentum", "rmsprop", "adam"), examples=(1000, 120, 24), steps=320, every=20
    ),
    chosen="networks, data and rates: the phenomenon is Cohen et al.'s, the runs are our own.",
)
