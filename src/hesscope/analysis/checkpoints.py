"""The stage along training: loss, sharpness, trace and blocks at every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..curvature import Hessian, Problem
from ..linalg import eigenpairs, trace
from ..partition import Partition
from ..results.history import TrainingHistory
from ..structure import block_norms
from .context import Context


def history(run: Context, checkpoints: Mapping[str, Problem]) -> TrainingHistory:
    """The same numbers at every checkpoint; coarser than those of the analysis itself."""

    def compute() -> TrainingHistory:
        losses, tops, traces, snapshots = [], [], [], []
        for label, problem in checkpoints.items():
            hessian = run.counted(f"checkpoint {label}", Hessian(problem), 30)
            losses.append(problem.loss_value())
            tops.append(eigenpairs(hessian, 1, tol=1e-2, rng=run.rng).without_vectors())
            traces.append(trace(hessian, tol=0.05, rng=run.rng))  # a few per cent are enough for a curve
            if Partition.by("layer", problem).count > 1:
                snapshots.append(block_norms(problem, "layer"))
        return TrainingHistory(tuple(checkpoints), np.array(losses), tuple(snapshots), tuple(tops), tuple(traces))

    return run.stages.run(TrainingHistory, "history", compute)
