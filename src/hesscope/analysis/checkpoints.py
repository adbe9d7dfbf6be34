"""The stage along training: loss, sharpness, trace and blocks at every checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..curvature import Hessian, Problem
from ..linalg import eigenpairs, trace
from ..results.blocks import BlockNorms
from ..results.history import TrainingHistory
from ..results.plan import TRAINING, TRAINING_BLOCKS
from ..results.spectra import Eigenpairs, Estimate
from ..structure import block_norms
from .context import Context
from .layers import sampling
from .spectra import met
from .stages import Limit


def history(run: Context, checkpoints: Mapping[str, Problem]) -> TrainingHistory | None:
    """The same numbers at every checkpoint; coarser than those of the analysis itself."""
    chosen = evenly_spread(list(checkpoints), run.amount(TRAINING, len(checkpoints)))
    along = run.optional(TRAINING, lambda: _numbers(run, {label: checkpoints[label] for label in chosen}), None)
    if along is None:
        return None
    snapshots: tuple[BlockNorms, ...] = ()
    snapshots = run.optional(TRAINING_BLOCKS, lambda: _all_blocks(run, checkpoints, chosen), snapshots)
    return replace(along, snapshots=snapshots)


def evenly_spread(labels: list[str], count: int) -> list[str]:
    """`count` of the labels, evenly spread, with the first and the last."""
    if count >= len(labels):
        return labels
    return [labels[place] for place in np.linspace(0, len(labels) - 1, max(count, 2)).round().astype(int)]


def _numbers(run: Context, checkpoints: Mapping[str, Problem]) -> TrainingHistory:
    """One stage per checkpoint, so that a run that goes on has those that are done."""
    limit, seed = run.limit(TRAINING), run.config.seed
    losses, tops, traces = [], [], []
    for label, problem in checkpoints.items():

        def top(label: str = label, problem: Problem = problem) -> Eigenpairs:
            hessian = run.counted(f"checkpoint {label}", Hessian(problem), 30)
            return eigenpairs(hessian, 1, tol=1e-2, rng=run.rng).without_vectors()

        def whole(label: str = label, problem: Problem = problem) -> Estimate:
            hessian = run.counted(f"trace at checkpoint {label}", Hessian(problem), 30)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its error is in the result
                # A few per cent are enough for a curve.
                return trace(hessian, tol=0.05, rng=run.rng, max_products=limit)

        name = _file(run, label)
        losses.append(problem.loss_value())
        tops.append(run.stages.run(Eigenpairs, f"top-{name}", top, (label, seed)))
        traces.append(run.stages.run(Estimate, f"trace-{name}", whole, (label, seed), Limit(limit, met(0.05))))
    return TrainingHistory(tuple(checkpoints), np.array(losses), (), tuple(tops), tuple(traces))


def _all_blocks(run: Context, checkpoints: Mapping[str, Problem], chosen: list[str]) -> tuple[BlockNorms, ...]:
    return tuple(_blocks(run, label, checkpoints[label]) for label in chosen)


def _blocks(run: Context, label: str, problem: Problem) -> BlockNorms:
    run.announce(f"blocks at checkpoint {label}")
    probes, method = sampling(run, TRAINING_BLOCKS)

    def compute() -> BlockNorms:
        return block_norms(problem, "layer", probes=probes, method=method)

    return run.stages.run(BlockNorms, f"blocks-{_file(run, label)}", compute, (label, probes, method))


def _file(run: Context, label: str) -> str:
    """A name for files, whatever the label."""
    return "at-" + "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}" for c in label)
