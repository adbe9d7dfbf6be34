"""Columns of a curvature matrix by products with unit vectors, many at a time, by the way that measures fastest."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from ..curvature import GaussNewton, Hessian
from ..curvature.engines.graphs import GradientGraphs
from ..errors import DerivativeError, refuse
from ..operators import LinearOperator
from ..space import ParameterSpace
from .source import MatrixSource
from .stack import Structure

_WIDTHS = (16, 64)


def column_tiles(source: MatrixSource, structure: Structure | None, order: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The rows of what is in no structured layer against everything from them on, in streaming order: (start, values).

    A tensor's columns need only the rows of itself and of what follows: autograd then skips the rest of the backward
    pass, and the symmetric half is never computed.
    """
    operator = source.products()
    width = choose_fastest(operator) if isinstance(operator, Hessian) and source.operator is None else 16
    if not isinstance(operator, Hessian | GaussNewton) or operator.rows != operator.problem.space:
        yield from _plain_tiles(operator, width)
        return
    space = operator.problem.space
    start = 0
    taken = list(space.names if structure is None else structure.others)
    layered = [n for layer in (structure.layers if structure else ()) for n in (layer.weight, layer.bias) if n]
    for place, name in enumerate(taken):
        wanted = space.only([*taken[place:], *layered])
        block = operator.restricted(wanted, space.only([name]))
        # The block's rows follow the parameters' order; `pick` brings them into streaming order.
        position = {int(flat): k for k, flat in enumerate(_places(space, wanted).tolist())}
        pick = torch.tensor([position[int(flat)] for flat in order[start:].tolist()])
        size = block.shape[1]
        for first, columns in _unit_products(block, width):
            yield start + first, columns[pick[first:]].T
        start += size


def _plain_tiles(operator: LinearOperator, width: int) -> Iterator[tuple[int, Tensor]]:
    """Every column of a symmetric operator, from its diagonal on."""
    for first, columns in _unit_products(operator, width):
        yield first, columns[first:].T


def _unit_products(operator: LinearOperator, width: int) -> Iterator[tuple[int, Tensor]]:
    """Products with unit vectors, `width` at a time: (first, columns)."""
    size = operator.shape[1]
    for first in range(0, size, width):
        columns = operator.unit_products(first, min(first + width, size))
        if not bool(torch.isfinite(columns).all()):
            refuse(
                f"products of {operator!r} must be finite",
                "NaN or infinity",
                "Check the loss and its gradient at these parameters.",
            )
        yield first, columns


def _places(space: ParameterSpace, part: ParameterSpace) -> Tensor:
    """The flat positions of the tensors of `part`, in the order of the space."""
    places = dict(space.slices())
    return torch.cat([torch.arange(places[name].start, places[name].stop) for name in part.names])


def choose_fastest(operator: Hessian) -> int:
    """Set the operator to batched or one-by-one products, whichever is faster here; returns how many to ask for at once.

    Batching halves the time of small networks and loses on large ones, so each way is timed once on a few columns.
    """
    engine = operator._engine
    if operator.problem.distributed or not isinstance(engine, GradientGraphs):
        return 16  # processes that share the work must ask for the same
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
