"""Random gradients whose second moment is the Gauss-Newton matrix, drawn in every part of the data: a few passes in all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...curvature.data import examples_in, in_batches_of
from ...curvature.engines.backward import pull_back
from ...curvature.losses.base import OutputLoss
from ...curvature.models.evaluation import value_of
from ...curvature.problem import Problem
from ...rng import Rng


def random_gradients(problem: Problem, draws: int, parts: int, order: Tensor, rng: Rng) -> Tensor:
    """`draws` random gradients of each part of the data, `(draws, parts, n)`; `order` sorts the parameters.

    With A = S Sᵀ and random signs ε over all rows and columns of a part, g = Jᵀ S ε has E[g gᵀ] = Jᵀ A J of this part,
    whatever the network, by one backward pass.
    """
    found = [_of_part(problem, rows, draws, order, rng.child(number)) for number, rows in _parts(problem, parts)]
    return torch.stack(found, 1)


def _parts(problem: Problem, wanted: int) -> Iterator[tuple[int, OutputLoss]]:
    """The data in as many parts as wanted, where examples do not see each other; every batch is confirmed whole."""
    total = sum(examples_in(batch) or 1 for batch in problem.batches)
    most = max(1, -(-total // wanted)) if problem.divisible else None
    number = 0
    for index, batch in enumerate(problem.batches):
        value = 0.0
        for part in in_batches_of(batch, most):
            rows = problem.evaluate(part, problem.leaves())
            assert isinstance(rows, OutputLoss)
            value += value_of(rows)
            yield number, rows
            number += 1
        problem.confirm(index, value)


def _of_part(problem: Problem, rows: OutputLoss, draws: int, order: Tensor, rng: Rng) -> Tensor:
    leaves: list[Any] = list(problem.leaves().values())
    out = torch.zeros(draws, problem.space.size, dtype=problem.dtype, device="cpu")
    if rows.f.requires_grad and len(rows.f):
        for draw, place in enumerate(out):
            pieces = pull_back([rows.f], leaves, [rows.random_column(rng.child(draw).torch())])
            flat = torch.zeros(problem.space.size, dtype=problem.dtype, device=problem.device)
            place[:] = problem.space.pack(pieces, flat).cpu()[order]
    return out
