"""Jacobian products of the outputs, from graphs that are kept: J v by double backward, Jᵀ u by backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...space import ParameterSpace
from ..losses.base import OutputLoss
from ..problem import Problem
from .backward import Place, linear_at, place_of, pull_back
from .given_batches import in_given_batches
from .head_terms import HeadTerms
from .kept import KeptGraphs
from .output_head import head_of

# Row-wise linear maps between J and Jᵀ, for example the loss's curvature; given the rows and their global index.
Middle = Callable[[OutputLoss, Tensor, int], Tensor]


@dataclass
class _Linearised:
    """One batch: outputs f(θ), and u ↦ Jᵀu as a graph in u, whose own backward is v ↦ J v.

    With a `head` the outputs are the hidden states in front of the output layer, which is applied in closed form.
    """

    value: float
    rows: OutputLoss | None
    first_row: int
    outputs: Tensor
    u: Tensor
    pullback: tuple[Tensor | Place | None, ...]
    head: HeadTerms | None = None

    @property
    def held_bytes(self) -> int:
        return 0 if self.head is None else self.head.held_bytes

    def bend(self, middle: Middle, image: Tensor) -> Tensor:
        """The row-wise map between J and Jᵀ."""
        assert self.rows is not None
        return middle(self.rows, image, self.first_row)


class JacobianGraphs(KeptGraphs[_Linearised]):
    """J of all rows, batch by batch. `J v` costs about as much as a forward pass, `Jᵀ u` as a backward pass."""

    def __init__(self, problem: Problem, without_logits: bool = False) -> None:
        super().__init__(problem)
        self._kept: list[_Linearised] = []
        self._next_row = 0
        self._without_logits = without_logits  # only `sandwich` is asked for

    def trace(self, batch: Any) -> _Linearised:
        found = head_of(self.problem) if self._without_logits else None
        head = None if found is None else found.evaluate(batch, self.leaves, self._file is None)
        if head is not None:
            value = sum(float(rows.value) for _, rows in head.chunks())
            return _Linearised(value, None, self._next_row, head.x, *self._linearised(head.x), head)
        rows = self.problem.evaluate(batch, self.leaves)
        assert isinstance(rows, OutputLoss)
        return _Linearised(float(rows.value), rows, self._next_row, rows.f, *self._linearised(rows.f))

    def _linearised(self, outputs: Tensor) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        u = linear_at(outputs)
        wrt = list(self.leaves.values())
        pullback: tuple[Tensor | None, ...] = (None,) * len(wrt)
        if outputs.requires_grad:
            pullback = torch.autograd.grad(outputs, wrt, u, create_graph=True, allow_unused=True)
        return u, pullback

    def hold(self, graph: _Linearised) -> None:
        graph.pullback = tuple(g if g is None else place_of(g) for g in graph.pullback)
        self._kept.append(graph)
        self._next_row += len(graph.outputs)

    def forget(self) -> None:
        self._kept, self._next_row = [], 0

    def _groups(self) -> Iterator[list[_Linearised]]:
        """The kept batches as one group (one autograd call for all), then every other batch alone."""
        self.build()
        if self._kept:
            yield self._kept
        kept_rows = self._next_row
        try:
            for graph in self.rebuilt():
                yield [graph]
                self._next_row += len(graph.outputs)
        finally:  # also where a product breaks off
            self._next_row = kept_rows

    @in_given_batches
    def sandwich(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor, middle: Middle) -> Tensor:
        """Σ_batches Jᵀ M J v for vectors as rows: `(k, n)` to `(k, m)`, not yet scaled."""
        out = torch.zeros(block.shape[0], rows.size, dtype=block.dtype, device=block.device)
        for group in self._groups():
            for vector, total in zip(block, out, strict=True):
                images = self._push(group, columns, vector)
                cotangents = [
                    part.bend(middle, image)
                    if part.head is None
                    else self._through_head(part, part.head, image, columns, vector, rows, total, middle)
                    for part, image in zip(group, images, strict=True)
                ]
                self._pull(group, rows, cotangents, total)
        return out

    def _through_head(
        self,
        part: _Linearised,
        head: HeadTerms,
        image: Tensor,
        columns: ParameterSpace,
        vector: Tensor,
        rows: ParameterSpace,
        total: Tensor,
        middle: Middle,
    ) -> Tensor:
        """What flows back into the hidden states; what flows into the output layer's own parameters is added to `total`."""
        places, own = dict(columns.slices()), (head.weight, head.bias)
        moves = [
            vector[places[name]].view(t.shape).to(t.dtype) if t is not None and name in places else None
            for name, t in zip(head.names, own, strict=True)
        ]
        found = head.sandwich(middle, part.first_row, image, *moves)
        targets = dict(rows.slices())
        for name, piece in zip(head.names, (found.weight, found.bias), strict=True):
            if piece is not None and name in targets:
                total[targets[name]] += piece.reshape(-1)
        return found.x

    @in_given_batches
    def push(self, columns: ParameterSpace, block: Tensor) -> Tensor:
        """J v for vectors as rows: `(k, n)` to `(k, R C)`."""
        pieces = []
        for group in self._groups():
            images = [torch.cat([i.reshape(-1) for i in self._push(group, columns, v)]) for v in block]
            pieces.append(torch.stack(images))
        return torch.cat(pieces, 1)

    @in_given_batches
    def pull(self, rows: ParameterSpace, block: Tensor) -> Tensor:
        """Jᵀ u for vectors as rows: `(k, R C)` to `(k, n)`."""
        out = torch.zeros(block.shape[0], rows.size, dtype=block.dtype, device=block.device)
        start = 0
        for group in self._groups():
            sizes = [part.outputs.numel() for part in group]
            for vector, total in zip(block, out, strict=True):
                parts = torch.split(vector[start : start + sum(sizes)], sizes)
                shaped = [piece.reshape(part.outputs.shape) for piece, part in zip(parts, group, strict=True)]
                self._pull(group, rows, shaped, total)
            start += sum(sizes)
        return out

    def row_count(self) -> int:
        """R C: the number of rows of J."""
        return sum(rows.f.numel() for rows in self._outputs())

    def rows_here(self) -> int:
        """R of this process."""
        return sum(len(rows.f) for rows in self._outputs())

    def _outputs(self) -> Iterator[OutputLoss]:
        for batch in self.problem.batches:
            with torch.no_grad():
                rows = self.problem.evaluate(batch, self.problem.parameters)
            assert isinstance(rows, OutputLoss)
            yield rows

    def _push(self, group: list[_Linearised], columns: ParameterSpace, vector: Tensor) -> list[Tensor]:
        place = dict(columns.slices())
        names = list(self.leaves)
        sources, cotangents = [], []
        for part in group:
            for name, g in zip(names, part.pullback, strict=True):
                if g is not None and name in place:
                    sources.append(g)
                    cotangents.append(vector[place[name]].reshape(g.shape).to(g.dtype))
        targets = [part.u for part in group]
        images = pull_back(sources, targets, cotangents) if sources else (None,) * len(group)
        return [torch.zeros_like(u) if i is None else i for i, u in zip(images, targets, strict=True)]

    def _pull(self, group: list[_Linearised], rows: ParameterSpace, cotangents: list[Tensor], total: Tensor) -> None:
        live = [
            (part.outputs, u.to(part.outputs.dtype))
            for part, u in zip(group, cotangents, strict=True)
            if part.outputs.requires_grad
        ]
        if not live:
            return
        pulled = pull_back([f for f, _ in live], [self.leaves[name] for name in rows.names], [u for _, u in live])
        for (_, place), piece in zip(rows.slices(), pulled, strict=True):
            if piece is not None:
                total[place] += piece.reshape(-1)
