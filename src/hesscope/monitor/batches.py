"""Batch sharpness: the curvature of a mini-batch along its own gradient, E[gᵀ H_B g] / E|g|² over batches B."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from ..curvature import Problem
from ..curvature.data import examples_in, in_batches_of
from ..curvature.engines.backward import pull_back
from ..curvature.gradient_mode import differentiable
from ..curvature.models.evaluation import gradient_of
from ..step_stability.batches import ratio_of_means

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
    value, error = ratio_of_means(np.array([_one(problem, part) for part in parts]))
    return None if math.isnan(value) else (value, error, 1)


@differentiable()
def _one(problem: Problem, batch: Any) -> tuple[float, float]:
    """gᵀ H_B g and |g|² of one batch, both of its loss."""
    leaves = problem.leaves()
    terms = problem.evaluate(batch, leaves)
    gradients = gradient_of(terms, leaves, create_graph=True, through_loss=True)
    live = [g for g in gradients if g is not None and g.requires_grad]
    pulled = pull_back(live, list(leaves.values()), [g.detach() for g in live], keep=False)
    bent, length = 0.0, 0.0
    for g, product in zip(gradients, pulled, strict=True):
        length += _inner(g, g)
        bent += _inner(g, product)
    # The loss of a batch, as training has it: a mean over its count, or a sum.
    mean = 1.0 / terms.count if getattr(problem.loss, "mean", True) else 1.0
    return bent * mean**3, length * mean**2


def _inner(a: Tensor | None, b: Tensor | None) -> float:
    return 0.0 if a is None or b is None else float((a.detach().double() * b.detach().double()).sum())
