"""Spikes: runs continued from checkpoints at multiples of the rate that the edge predicts, and layers frozen."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...curvature import Hessian
from ...linalg import eigenpairs
from ...plots.style import THEORY, new_figure
from ...results.claims import Outcome
from ...step_stability import Preconditioned, binding, read_edge, read_optimizer
from ...step_stability.reading import reading_of
from ..declared import at_least
from ..recipe import Findings, experiment
from ._runs import INKS, FullBatchRun, at_checkpoints, runs_of, synthetic_of

SOURCE = "docs/theory/stability.md"
# A spike: within the steps after the checkpoint the loss is once this much above where it was, or not finite.
SPIKE = 1.1
WITHIN = 1.5  # the predicted rate splits a checkpoint if all is calm at 1/1.5 of it and all spikes at 1.5 times
SHARE = 0.9  # of the checkpoints, for both claims
FROZEN_ERROR = 0.1  # how far the predicted edge without the binding layer may be off
MULTIPLES = (0.5, 1 / WITHIN, 0.8, 1.25, WITHIN, 2.0, 4.0)
CLAIMS = (
    at_least("split", SOURCE, f"The predicted critical rate splits calm runs from spikes within a factor of {WITHIN:g} (share of the "
             "checkpoints)", SHARE, "nine of ten, as the page on stability promises", basis="convention"),
    at_least("calm", SOURCE, "Below the predicted rate nothing spikes (share of the checkpoints)", SHARE, "nine of ten", basis="convention"),
    at_least("loud", SOURCE, "At twice the rate and more all spike (share of the checkpoints)", SHARE, "nine of ten", basis="convention"),
    at_least("frozen", SOURCE, f"With the binding layer frozen the edge is where the leading eigenpairs predict it, to {FROZEN_ERROR:.0%} "
             "(share of the checkpoints)", SHARE, "nine of ten", basis="convention"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Which networks and optimisers, on how many examples, at which steps of training, continued for how long."""

    networks: tuple[str, ...] = ("mlp",)
    optimizers: tuple[str, ...] = ("gd", "rmsprop")
    examples: tuple[int, ...] = (400,)
    at: tuple[int, ...] = (120,)
    continued: int = 40
    k: int = 6
    seed: int = 0
    data_dir: str | None = None


def run(config: Config) -> Findings:
    """At every checkpoint: the critical rate, forty steps at multiples of it, and the edge without the binding layer."""
    runs = runs_of(config)
    points = at_checkpoints(runs, config.at, lambda run: _point(run, config))
    data = {"points": tuple(points), "multiples": np.array(MULTIPLES), "synthetic": synthetic_of(runs)}
    return data, _measured(points)


def _point(run: FullBatchRun, config: Config) -> dict[str, Any]:
    problem = run.problem()
    state = read_optimizer(problem, run.optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lesser pairs that did not converge; the first one's error is kept
        top = eigenpairs(Preconditioned(Hessian(problem), state), config.k, tol=0.02, max_products=150, rng=config.seed)
        reading = reading_of(state, "hessian", top)
        blocks = binding(problem, top, "layer")
        worst = blocks.order[0]
        layer = blocks.names[worst]
        rest = [name for name in problem.space.names if not name.startswith(f"{layer}.") and name != layer]
        alone = problem.only(rest)
        left = read_edge(alone, run.optimizer, tol=0.02, max_products=150, rng=config.seed)
    here = float(run.loss().detach())
    curves = [run.continued(multiple * reading.critical_rate, config.continued) for multiple in MULTIPLES]
    return {
        "loss": here,
        "ratio": reading.ratio,
        "ratio_error": reading.ratio_error,
        "critical_rate": reading.critical_rate,
        "peaks": np.array([_peak(curve, here) for curve in curves]),
        "layer": layer,
        "share": float(blocks.share[worst]),
        "predicted": float(blocks.frozen[worst]) / reading.sharpness,
        "at_most": float(blocks.frozen_at_most[worst]) / reading.sharpness,
        "measured": left.sharpness / left.edge / reading.ratio,
        "products": top.products,
    }


def _peak(curve: list[float], here: float) -> float:
    """The highest loss of a continued run over that of the checkpoint; infinite where it left all bounds."""
    return float(np.max(curve)) / here if np.all(np.isfinite(curve)) and max(curve) < 1e6 else float("inf")


def _spikes(point: dict[str, Any]) -> Any:
    return np.asarray(point["peaks"]) > SPIKE


def _is_split(point: dict[str, Any]) -> bool:
    low, high = np.array(MULTIPLES) <= 1 / WITHIN, np.array(MULTIPLES) >= WITHIN
    return bool(not _spikes(point)[low].any() and _spikes(point)[high].all())


def _measured(points: list[dict[str, Any]]) -> dict[str, float]:
    multiples = np.array(MULTIPLES)
    return {
        "split": float(np.mean([_is_split(point) for point in points])),
        "calm": float(np.mean([not _spikes(point)[multiples < 1].any() for point in points])),
        "loud": float(np.mean([_spikes(point)[multiples >= 2].all() for point in points])),
        "frozen": float(np.mean([abs(point["predicted"] / point["measured"] - 1) <= FROZEN_ERROR for point in points])),
    }


def figures(outcome: Outcome) -> dict[str, Any]:
    """The share of continued runs that spike at each multiple, by optimiser; predicted against measured edges."""
    points, multiples = outcome.data["points"], np.asarray(outcome.data["multiples"])
    figure, (left, right) = new_figure(1, 2, width=4.6, height=3.4)
    for optimizer, ink in zip(dict.fromkeys(p["optimizer"] for p in points), INKS, strict=False):
        chosen = [p for p in points if p["optimizer"] == optimizer]
        share = np.mean([_spikes(p) for p in chosen], axis=0)
        left.plot(multiples, 100 * share, "o-", color=ink, ms=4, label=f"{optimizer} ({len(chosen)})")
        right.plot(
            [1 / p["predicted"] for p in chosen], [1 / p["measured"] for p in chosen], "o", color=ink, ms=4, alpha=0.7
        )
    left.axvline(1.0, color=THEORY, ls="--", lw=1)
    left.set(xscale="log", xlabel="rate / predicted critical rate", ylabel="continued runs that spike, %")
    left.set_xticks(multiples, [f"{m:.3g}" for m in multiples])
    left.minorticks_off()
    left.legend(fontsize=8)
    ends = [1.0, 1.1 * max(max(1 / p["predicted"], 1 / p["measured"]) for p in points)]
    right.plot(ends, ends, color=THEORY, ls="--", lw=1)
    right.fill_between(ends, np.array(ends) / 1.1, np.array(ends) * 1.1, color=THEORY, alpha=0.12, lw=0)
    right.set(xlabel="predicted", ylabel="measured", title="edge without the binding layer / edge")
    left.set_title(f"{len(points)} checkpoints, continued {outcome.config['continued']} steps")
    return {"spikes": figure}


EXPERIMENT = experiment(
    __name__,
    "Spikes on either side of the predicted rate, and the edge without the binding layer",
    SOURCE,
    quick=Config(),
    default=Config(
        networks=("mlp",), optimizers=("gd", "momentum", "rmsprop", "adam"), examples=(1000,), at=(40, 80, 120, 180)
    ),
    paper=Config(
        ("mlp", "lenet5", "gpt"),
        ("gd", "momentum", "rmsprop", "adam"),
        examples=(1000, 120, 24),
        at=(40, 80, 120, 180),
    ),
    chosen="networks, data and rates: these claims are our own.",
)
