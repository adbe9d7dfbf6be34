"""Block structure along training: the same scores at every checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..curvature import Problem
from ..errors import InputError, refuse
from ..measure import Array
from ..partition import Kind, Partition, as_partition
from ..result import Result
from .activations import Matrix
from .circulant import circulant_score
from .norms import BlockNorms, block_norms


@dataclass(frozen=True, eq=False)
class Course(Result):
    """Scores at each checkpoint, as arrays over `steps`; `snapshots` holds the norms they come from.

    `ratios[layer]` is the mean ratio of a layer, `largest_ratio` that of its worst pair, `circulant` the score of
    Finding 2 (NaN for networks without two linear layers in a row).
    """

    steps: Array
    loss: Array
    diagonal_share: Array
    ratios: dict[str, Array]
    largest_ratio: Array
    circulant: Array
    snapshots: tuple[BlockNorms, ...]


def structure_course(
    problem: Problem,
    checkpoints: Iterable[tuple[float, Mapping[str, Tensor]]],
    partition: Partition | Kind = "neuron",
    matrix: Matrix = "hessian",
) -> Course:
    """Block norms and their scores at each (step, parameters by name), on the data of `problem`."""
    chosen = as_partition(partition, problem)
    steps, losses, found, circulant = [], [], [], []
    for step, parameters in checkpoints:
        here = problem.at(parameters)
        steps.append(float(step))
        losses.append(here.loss_value())
        found.append(block_norms(here, chosen, matrix))
        circulant.append(_circulant(here))
    if not found:
        refuse("a course needs at least one checkpoint", "none", "Pass pairs (step, {name: tensor}).")
    ratios = {key: np.array([norms.layer_ratios[key] for norms in found]) for key in found[0].layer_ratios}
    return Course(
        np.array(steps),
        np.array(losses),
        np.array([norms.diagonal_share for norms in found]),
        ratios,
        np.array([norms.largest_ratio for norms in found]),
        np.array(circulant),
        tuple(found),
    )


def _circulant(problem: Problem) -> float:
    try:
        return circulant_score(problem).score
    except InputError:
        return float("nan")
