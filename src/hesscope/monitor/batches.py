"""Batch sharpness: the curvature of a mini-batch along its own gradient, E[gᵀ H_B g] / E|g|² over batches B."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..curvature import Problem
from ..curvature.data import examples_in, in_batches_of
from ..linalg.estimates.estimate import ratio_of_means
from ..step_stability.batches import along_gradient

LEAST = 2


def batch_sharpness(problem: Problem, size: int) -> tuple[float, float, int] | None:
    """(value, standard error, products it cost) over the problem's data in batches of `size`; None for fewer than two.

    Together the batches cost one gradient with its graph and one product of all data.
    """
    parts: list[Any] = []
    for batch in problem.batches:
        if (examples_in(batch) or 0) > size and not problem.divisible:
            return None
        parts += in_batches_of(batch, size)
    if len(parts) < LEAST:
        return None
    value, error = ratio_of_means(np.array([along_gradient(problem, part) for part in parts]))
    return None if math.isnan(value) else (value, error, 1)
