"""Block structure along training: the same scores at every checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..curvature import Problem
from ..errors import refuse
from ..partition import Kind, Partition, as_partition
from ..result import Result
from .activations import Matrix
from .norms import BlockNorms, block_norms

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Course(Result):
    """Scores at each checkpoint: `ratios[layer]`, `diagonal_share` and `loss` are arrays over `steps`."""

    steps: Array
    loss: Array
    diagonal_share: Array
    ratios: dict[str, Array]
    snapshots: tuple[BlockNorms, ...]


def structure_course(
    problem: Problem,
    checkpoints: Iterable[tuple[float, Mapping[str, Tensor]]],
    partition: Partition | Kind = "neuron",
    matrix: Matrix = "hessian",
) -> Course:
    """Block norms and their scores at each (step, parameters by name), on the data of `problem`."""
    chosen = as_partition(partition, problem)
    steps, losses, found = [], [], []
    for step, parameters in checkpoints:
        here = problem.at(parameters)
        steps.append(float(step))
        losses.append(here.loss_value())
        found.append(block_norms(here, chosen, matrix))
    if not found:
        refuse("a course needs at least one checkpoint", "none", "Pass pairs (step, {name: tensor}).")
    ratios = {key: np.array([norms.layer_ratios[key] for norms in found]) for key in found[0].layer_ratios}
    share = np.array([norms.diagonal_share for norms in found])
    return Course(np.array(steps), np.array(losses), share, ratios, tuple(found))
