"""Columns of a curvature matrix by products with unit vectors, many at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...curvature import GaussNewton, Hessian
from ...curvature.data import examples_in
from ...curvature.engines.graphs import GradientGraphs
from ...errors import DerivativeError, refuse
from ...operators import LinearOperator
from ...operators.finite import all_finite
from ...space import ParameterSpace
from ..source import MatrixSource
from .stack import Structure

_WIDTH = 16
_BATCHED = 2e6  # parameters times examples, beyond which products one by one were measured to be faster


def column_tiles(
    source: MatrixSource, structure: Structure | None, order: Tensor, skip: int = 0
) -> Iterator[tuple[int, Tensor]]:
    """The rows of what is in no structured layer against everything from them on, in streaming order: (start, values).

    A tensor's columns need only the rows of itself and of what follows: autograd then skips the rest of the backward
    pass, and the symmetric half is never computed. The first `skip` tiles are left out.
    """
    operator = source.products()
    if isinstance(operator, Hessian) and source.operator is None:
        choose_method(operator)
    if not isinstance(operator, Hessian | GaussNewton) or operator.rows != operator.problem.space:
        for first, columns in _unit_products(operator, skip):
            yield first, columns[first:].T
        return
    space = operator.problem.space
    start = 0
    taken = list(space.names if structure is None else structure.others)
    layered = [n for layer in (structure.layers if structure else ()) for n in (layer.weight, layer.bias) if n]
    for place, name in enumerate(taken):
        size = space.only([name]).size
        tiles = -(-size // _WIDTH)
        if skip < tiles:
            wanted = space.only([*taken[place:], *layered])
            block = operator.restricted(wanted, space.only([name]))
            # The block's rows follow the parameters' order; `pick` brings them into streaming order.
            position = {int(flat): k for k, flat in enumerate(_places(space, wanted).tolist())}
            pick = torch.tensor([position[int(flat)] for flat in order[start:].tolist()], device="cpu")
            for first, columns in _unit_products(block, skip):
                yield start + first, columns[pick[first:]].T
        start += size
        skip = max(0, skip - tiles)


def _unit_products(operator: LinearOperator, skip: int) -> Iterator[tuple[int, Tensor]]:
    """Products with unit vectors, some at a time: (first, columns)."""
    size = operator.shape[1]
    for first in range(skip * _WIDTH, size, _WIDTH):
        columns = operator.unit_products(first, min(first + _WIDTH, size))
        if not all_finite(columns):
            refuse(
                f"products of {operator!r} must be finite",
                "NaN or infinity",
                "Check the loss and its gradient at these parameters.",
            )
        yield first, columns


def _places(space: ParameterSpace, part: ParameterSpace) -> Tensor:
    """The flat positions of the tensors of `part`, in the order of the space."""
    places = dict(space.slices())
    return torch.cat([torch.arange(places[name].start, places[name].stop, device="cpu") for name in part.names])


def choose_method(operator: Hessian) -> None:
    """Set the operator to products many at once where the network is small, which takes a third of the time there.

    By size and not by the clock: the two ways differ in rounding, and the same call gives the same bits.
    """
    engine = operator._engine
    if operator.problem.distributed or not isinstance(engine, GradientGraphs):
        return  # processes that share the work must ask for the same
    examples = sum(examples_in(batch) or 1 for batch in operator.problem.batches)
    engine.method = "batched" if examples * operator.shape[1] <= _BATCHED else "kept"
    if engine.method == "batched":
        try:
            operator.apply(torch.eye(operator.shape[1], 2, dtype=operator.dtype, device=operator.device))
        except DerivativeError:  # an operation without a batching rule
            engine.method = "kept"
