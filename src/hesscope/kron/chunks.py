"""The data in chunks, each layer's share as inputs and output Hessians; memory is bounded by the chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..curvature import Problem
from ..curvature.data import examples_in, first_examples, map_tensors
from ..curvature.losses.base import OutputLoss
from .columns import gauss_newton_columns, row_owners, unit_weights
from .plan import Plan
from .tapped import Tapped, tap

_LEAST_CHUNK, _MOST_CHUNK = 32e6, 256e6


@dataclass
class LayerChunk:
    """U units of one layer: inputs x `(U, P, groups, n)`, and M_u as columns N `(S, U, P, m)` or dense `(U, Pm, Pm)`."""

    x: Tensor
    weight: Tensor
    columns: Tensor | None
    dense: Tensor | None


class ChunkedData:
    """Walks over the data of a problem and hands out pieces of the planned layers, chunk by chunk."""

    def __init__(self, problem: Problem, plans: Sequence[Plan]) -> None:
        self.problem, self.plans = problem, tuple(plans)
        self._chunk_bytes = min(max(problem.memory_budget.limit / 4, _LEAST_CHUNK), _MOST_CHUNK)

    def chunks(self) -> Iterator[Any]:
        """Batches, cut so that the pieces of one chunk fit into a quarter of the memory the problem may use."""
        for batch in self.problem.batches:
            size = examples_in(batch)
            if size is None:
                yield batch
                continue
            step = max(1, int(self._chunk_bytes // self._bytes_per_example(batch)))
            for start in range(0, size, step):
                yield _between(batch, start, start + step)

    def tapped(self, chunk: Any) -> Tapped:
        """The chunk's loss as a function of the layers' outputs."""
        return tap(self.problem, chunk, [p.layer for p in self.plans], [p.flat for p in self.plans])

    def columns(self, tapped: Tapped) -> Iterator[tuple[Tensor, ...]]:
        """N_s of the layers with Gauss-Newton factors, column after column."""
        wanted = [i for i, plan in enumerate(self.plans) if plan.gauss_newton]
        if not wanted:
            return iter(())
        part = Tapped(tapped.terms, [tapped.seen[i] for i in wanted], tapped.examples)
        rows = tapped.terms
        assert isinstance(rows, OutputLoss)
        owners = [
            None if self.plans[i].in_order and len(rows.f) == len(tapped.seen[i].z) else row_owners(tapped, i)
            for i in wanted
        ]
        return gauss_newton_columns(part, owners)

    def pieces(self, chunk: Any) -> list[LayerChunk]:
        """One piece per planned layer."""
        tapped = self.tapped(chunk)
        found = zip(*self.columns(tapped), strict=True)
        return [self._piece(tapped, i, next(found, ()) if p.gauss_newton else ()) for i, p in enumerate(self.plans)]

    def _piece(self, tapped: Tapped, index: int, columns: Sequence[Tensor]) -> LayerChunk:
        plan, seen = self.plans[index], tapped.seen[index]
        x = seen.patches(tapped.examples)
        weight = unit_weights(tapped, index, plan.in_order)
        if not plan.gauss_newton:
            return LayerChunk(x, weight, None, second_derivative(tapped, index))
        none = seen.z.detach().new_zeros(0, *seen.z.shape)
        return LayerChunk(x, weight, torch.stack(list(columns)) if columns else none, None)

    def _bytes_per_example(self, batch: Any) -> float:
        few = first_examples(batch, 1)
        tapped = self.tapped(few)
        rows = tapped.terms
        total = 1.0
        for plan, seen in zip(self.plans, tapped.seen, strict=True):
            units, positions, m = seen.z.shape
            size = seen.z.element_size()
            if plan.gauss_newton:
                assert isinstance(rows, OutputLoss)
                columns = rows.columns() * (1 if plan.in_order else -(-len(rows.f) // units))
                total += columns * seen.z.numel() * size
                if columns < positions:  # then per-example gradients are held instead
                    total += columns * units * plan.layer.size * size
            else:
                total += units * (positions * m) ** 2 * size
            total += units * positions * plan.layer.inputs * plan.layer.groups * size
        return total


def second_derivative(tapped: Tapped, index: int) -> Tensor:
    """M_u = ∂²ℓ/∂z_u² of every unit, `(U, Pm, Pm)`, by one double-backward pass per entry of z_u."""
    z = tapped.seen[index].z
    units, positions, m = z.shape
    out = z.new_zeros(units, positions * m, positions * m)
    slope = Tapped(tapped.terms, [tapped.seen[index]], tapped.examples).slopes(create_graph=True)[0]
    if not slope.requires_grad:
        return out
    for entry in range(positions * m):
        tangent = z.new_zeros(z.shape)
        tangent.view(units, -1)[:, entry] = 1
        (row,) = torch.autograd.grad(slope, z, tangent, retain_graph=True, materialize_grads=True)
        out[:, entry] = row.reshape(units, -1)
    return (out + out.mT).div_(2)


def _between(batch: Any, start: int, stop: int) -> Any:
    if start == 0 and stop >= (examples_in(batch) or 0):
        return batch
    return map_tensors(batch, lambda t: t[start:stop])
