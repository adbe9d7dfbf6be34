"""Columns of a curvature matrix by products with unit vectors, many at a time, by the way that measures fastest."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from ..curvature import CurvatureOperator, GaussNewton, Hessian, Problem
from ..curvature.engines.graphs import GradientGraphs
from ..errors import DerivativeError
from .activations import Matrix
from .stack import Structure

_WIDTHS = (16, 64)


def operator_of(problem: Problem, matrix: Matrix) -> CurvatureOperator:
    """The operator of a matrix by name."""
    return Hessian(problem, method="batched") if matrix == "hessian" else GaussNewton(problem)


def column_tiles(problem: Problem, structure: Structure, order: Tensor, matrix: Matrix) -> Iterator[tuple[int, Tensor]]:
    """OutputLoss of the unstructured tensors against everything from them on, in streaming order: (start, values).

    A tensor's columns need only the rows of itself and of what follows: autograd then skips the rest of the backward
    pass, and the symmetric half is never computed.
    """
    operator = operator_of(problem, matrix)
    width = choose_fastest(operator) if isinstance(operator, Hessian) else 16
    start = 0
    taken = list(structure.others)
    layered = [n for layer in structure.layers for n in (layer.weight, layer.bias) if n]
    for place, name in enumerate(taken):
        wanted = [*taken[place:], *layered]
        block = operator.block(wanted, name)
        # The block's rows follow the parameters' order; `pick` brings them into streaming order.
        position = {int(flat): k for k, flat in enumerate(problem.space.indices(wanted).tolist())}
        pick = torch.tensor([position[int(flat)] for flat in order[start:].tolist()])
        size = block.shape[1]
        for first in range(0, size, width):
            count = min(width, size - first)
            eye = torch.zeros(size, count, dtype=operator.dtype, device=operator.device)
            eye[torch.arange(first, first + count), torch.arange(count)] = 1
            yield start + first, block.apply(eye)[pick[first:]].T
        start += size


def choose_fastest(operator: Hessian) -> int:
    """Set the operator to batched or one-by-one products, whichever is faster here; returns how many to ask for at once.

    Batching halves the time of small networks and loses on large ones, so each way is timed once on a few columns.
    """
    engine = operator._engine
    assert isinstance(engine, GradientGraphs)
    n = operator.shape[1]
    best, choice = float("inf"), ("kept", 16)
    for method, width in (("kept", 2), *(("batched", width) for width in _WIDTHS if width <= n)):
        block = torch.eye(n, width, dtype=operator.dtype, device=operator.device)
        engine.method = method
        try:
            operator.apply(block[:, :2])
            began = time.perf_counter()
            operator.apply(block)
        except DerivativeError:  # an operation without a batching rule
            continue
        each = (time.perf_counter() - began) / width
        if each < best:
            best, choice = each, (method, max(16, width))
    engine.method = choice[0]
    return choice[1]
