"""Block structure along training: the same scores at every checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import numpy as np
from torch import Tensor

from ..arguments import as_float, shown
from ..curvature import Problem
from ..curvature.given_problem import need_problem
from ..errors import InputError, refuse
from ..operators.autocast import own_types
from ..operators.given import MatrixName
from ..partition import Grouping, Partition
from ..results.history import TrainingHistory
from .circulant import circulant_score
from .norms import block_norms


@own_types()
def structure_history(
    problem: Problem,
    checkpoints: Iterable[tuple[float, Mapping[str, Tensor]]],
    *,
    partition: Partition | Grouping = "neuron",
    matrix: MatrixName = "hessian",
) -> TrainingHistory:
    """Block norms and their scores at each (step, parameters by name), on the data of `problem`."""
    labels, losses, found, circulant = [], [], [], []
    need_problem(problem)
    for pair in checkpoints:
        step, parameters = _checkpoint(pair)
        here = problem.at(parameters)
        labels.append(str(step))
        losses.append(here.loss_value())
        found.append(block_norms(here, partition, matrix=matrix))
        circulant.append(_circulant(here))
    if not found:
        refuse("a history needs at least one checkpoint", "none", "Pass pairs (step, {name: tensor}).")
    return TrainingHistory(tuple(labels), np.array(losses), tuple(found), circulant=np.array(circulant))


def _checkpoint(pair: Any) -> tuple[float, Mapping[str, Tensor]]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        refuse(
            "a checkpoint is a pair of a step and parameters", type(pair).__name__, "Pass pairs (step, {name: tensor})."
        )
    step = as_float(pair[0])
    if step is None or not isfinite(step):
        refuse("a step must be a finite number", shown(pair[0]), "Pass pairs (step, {name: tensor}).")
    return pair[0], pair[1]


def _circulant(problem: Problem) -> float:
    try:
        return circulant_score(problem).score
    except InputError:
        return float("nan")
