"""The data in chunks, each layer's share as inputs and output Hessians; memory is bounded by the chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...curvature import Problem
from ...curvature.data import examples_in, first_examples, map_tensors
from ...layers import ProblemFacts, facts_of
from ...rng import Rng
from ..curvature_choice import LayerCurvature
from .chunk_run import ChunkRun
from .columns import gauss_newton_columns, row_owners, sampled_columns, unit_weights

_LEAST_CHUNK, _MOST_CHUNK = 32e6, 256e6


@dataclass
class LayerChunk:
    """U units of one layer: inputs x `(U, P, groups, n)`, and M_u as columns N `(S, U, P, m)` or dense `(U, Pm, Pm)`."""

    x: Tensor
    weight: Tensor
    columns: Tensor | None
    dense: Tensor | None


class ChunkedData:
    """Walks over the data of a problem and hands out its chunks, each with what the chosen layers make of it."""

    def __init__(self, problem: Problem, layers: Sequence[LayerCurvature]) -> None:
        self.problem, self.layers = problem, tuple(layers)
        self.chunk_bytes = min(max(problem.memory_budget.limit / 4, _LEAST_CHUNK), _MOST_CHUNK)

    @cached_property
    def facts(self) -> ProblemFacts:
        return facts_of(self.problem)

    @cached_property
    def _last(self) -> LayerCurvature | None:
        """The layer closest to the outputs whose units are examples."""
        apart = [layer for layer in self.facts.exact if layer.multiplies and not layer.positions_apart]
        return LayerCurvature(apart[-1], True) if apart and self.problem.has_outputs else None

    def chunks(self, skip: int = 0) -> Iterator[Any]:
        """Batches, cut so that what is held of one chunk fits into a quarter of the memory the problem may use.

        The first `skip` of them were seen by an earlier run.
        """
        number = 0
        for batch in self.problem.batches:
            size = examples_in(batch)
            assert size is not None  # or no layer were exact
            step = max(1, int(self.chunk_bytes // self._bytes_per_example(batch))) if size > 1 else 1
            for start in range(0, size, step):
                chunk, number = _between(batch, start, start + step), number + 1
                if number <= skip:
                    continue
                yield chunk

    def run(self, chunk: Any) -> ChunkRun:
        """The chunk's loss as a function of the layers' outputs."""
        return ChunkRun.of(self.problem, chunk, self.layers, self._last)

    def owners(self, run: ChunkRun) -> list[Tensor] | None:
        """The unit of every row of the loss, layer by layer; None for a loss that is one number."""
        return row_owners(run) if self.problem.has_outputs else None

    def columns(self, run: ChunkRun, owners: list[Tensor] | None) -> Iterator[tuple[Tensor, ...]]:
        """N_s of the layers with Gauss-Newton factors, column after column."""
        wanted = [i for i, layer in enumerate(self.layers) if layer.gauss_newton and not layer.directions]
        if not wanted:
            return iter(())
        assert owners is not None
        return gauss_newton_columns(run.only(wanted), [owners[i] for i in wanted])

    def random_columns(
        self, run: ChunkRun, number: int, rng: Rng
    ) -> Iterator[tuple[int, list[int], tuple[Tensor, ...]]]:
        """N of the layers that take random directions, of chunk `number`: which direction, which layers, and theirs."""
        rank = torch.distributed.get_rank() if self.problem.distributed else 0
        for count in sorted({layer.directions for layer in self.layers if layer.directions}):
            wanted = [i for i, layer in enumerate(self.layers) if layer.directions == count]
            draws = sampled_columns(run.only(wanted), count, rng.child("directions", rank, number))
            for draw, columns in enumerate(draws):
                yield draw, wanted, columns

    def layer_chunks(self, chunk: Any) -> list[LayerChunk]:
        """What each layer makes of one chunk."""
        run = self.run(chunk)
        owners = self.owners(run)
        found = zip(*self.columns(run, owners), strict=True)
        return [
            self._layer_chunk(run, i, owners, next(found, ()) if layer.gauss_newton else ())
            for i, layer in enumerate(self.layers)
        ]

    def _layer_chunk(
        self, run: ChunkRun, index: int, owners: list[Tensor] | None, columns: Sequence[Tensor]
    ) -> LayerChunk:
        # A bfloat16 model's products are in float32.
        x, dtype = run.patches(index).to(self.problem.dtype), self.problem.dtype
        weight = unit_weights(run, index, None if owners is None else owners[index])
        if not self.layers[index].gauss_newton:
            return LayerChunk(x, weight, None, run.second_derivative(index).to(dtype))
        none = x.new_zeros(0, *run.shape(index))
        return LayerChunk(x, weight, torch.stack(list(columns)).to(dtype) if columns else none, None)

    def _bytes_per_example(self, batch: Any) -> float:
        run = self.run(first_examples(batch, 1))
        total = 1.0
        for i, layer in enumerate(self.layers):
            units, positions, m = run.shape(i)
            size = run.run.layers[i].z.element_size()
            if layer.directions:
                total += 4 * units * positions * m * size
            elif layer.gauss_newton:
                columns = run.rows.columns() * max(1, -(-len(run.rows.f) // units))
                total += columns * units * positions * m * size
                if columns < positions:  # then per-example gradients are held instead
                    total += columns * units * layer.layer.size * size
            else:
                total += units * (positions * m) ** 2 * size
            total += units * positions * layer.layer.inputs * layer.layer.groups * size
        return total


def _between(batch: Any, start: int, stop: int) -> Any:
    if start == 0 and stop >= (examples_in(batch) or 0):
        return batch
    return map_tensors(batch, lambda t: t[start:stop])
