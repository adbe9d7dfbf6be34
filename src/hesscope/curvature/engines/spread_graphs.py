"""Hessian products of a sharded model: double backward through the gathering of parameters. Nothing is whole for long."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from threading import RLock
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..data import to_device
from ..distributed import together
from ..models.evaluation import gradient_of, value_of
from ..problem import Problem
from ..proofs.probing import probe_batches
from .backward import Place, place_of, pull_back

_Gradient = list[Tensor | Place | None]


class SpreadGraphs:
    """Σ_batches ∇ℓ as graphs, in parts. All processes take the same steps: one with fewer batches than another runs some
    examples that all have, and adds nothing. Graphs are kept where there is room for all of them in every process."""

    def __init__(self, problem: Problem, through_loss: bool) -> None:
        assert problem.spread is not None
        self.problem, self.spread, self.through_loss = problem, problem.spread, through_loss
        self.leaves = {name: self.spread.exchange.parts[name] for name in problem.space.names}
        self.kept_bytes = 0
        self._kept: list[_Gradient] | None = None
        self._steps = -1
        self._lock = RLock()

    def products(self, block: Tensor) -> Tensor:
        """The own part of Σ H v over all data and processes, for own parts of vectors as rows."""
        with self._lock:
            if self._steps < 0:
                self._prepare()
            vectors = [self._in_parts(vector) for vector in block]
            totals = [[torch.zeros_like(part) for part in vector] for vector in vectors]
            for gradient in self._kept if self._kept is not None else self._gradients():
                self._pull(gradient, vectors, totals, keep=self._kept is not None)
            self.spread.exchange.forget()
            return torch.stack([self._own(total, block) for total in totals])

    def _prepare(self) -> None:
        """Count the steps, and keep the graphs if they have room."""
        self._idle = probe_batches(self.problem)[0]
        self._steps = self._most(sum(1 for _ in self.problem.batches))
        saved: dict[int, int] = {}

        def count(tensor: Tensor) -> None:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()

        batch = next(iter(self.problem.batches), None)
        first = self._traced(batch, 0, count)
        size = self._most(sum(saved.values())) * self._steps
        budget = self.problem.memory_budget
        reserved = budget.reserve(size)
        if not self.problem._anywhere(not reserved):
            self.kept_bytes = size
            weakref.finalize(self, budget.release, size)
            self._kept = [first, *self._gradients(1)]
        elif reserved:
            budget.release(size)

    def _most(self, number: int) -> int:
        found = torch.tensor([number], dtype=torch.int64, device=self.problem.device)
        with together():
            dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return int(found)

    def _gradients(self, start: int = 0) -> Iterator[_Gradient]:
        batches = iter(self.problem.batches)
        for index in range(self._steps):
            batch = next(batches, None)
            if index >= start:
                yield self._traced(batch, index)

    def _traced(self, batch: Any, index: int, count: Any = lambda _: None) -> _Gradient:
        exchange = self.spread.exchange
        exchange.idle = batch is None
        try:
            with exchange.gathered_again(count):
                terms = self.spread.evaluation.at(
                    to_device(self._idle if batch is None else batch, self.problem.device), {}
                )
                value = value_of(terms)
                found: Sequence[Tensor | None] = gradient_of(terms, self.leaves, True, self.through_loss)
        finally:
            exchange.idle = False
            exchange.forget()
        if batch is None:
            common = [exchange.shares[name].common for name in self.leaves]
            found = [0 * g if alone and g is not None else g for g, alone in zip(found, common, strict=True)]
        if batch is not None:
            self.problem.confirm(index, value)
        return [None if g is None else place_of(g) for g in found]

    def _pull(
        self, gradient: _Gradient, block: Sequence[list[Tensor]], out: Sequence[list[Tensor]], keep: bool
    ) -> None:
        live = [g is not None and g.requires_grad for g in gradient]
        sources = [g for g, lives in zip(gradient, live, strict=True) if g is not None and lives]
        for index, (vector, total) in enumerate(zip(block, out, strict=True)):
            cotangents = [part for part, lives in zip(vector, live, strict=True) if lives]
            pulled = pull_back(sources, list(self.leaves.values()), cotangents, keep=keep or index + 1 < len(block))
            for place, piece in zip(total, pulled, strict=True):
                if piece is not None:
                    place += piece

    def _in_parts(self, vector: Tensor) -> list[Tensor]:
        """One vector as the leaves are: what is common to all processes is whole in each."""
        shares = [self.spread.exchange.shares[name] for name in self.leaves]
        sizes = [share.own.stop - share.own.start for share in shares]
        found = []
        for own, share, leaf in zip(torch.split(vector, sizes), shares, self.leaves.values(), strict=True):
            if share.common:
                whole = own.new_zeros(share.shape.numel())
                whole[share.own] = own
                own = whole.view(share.shape)
            found.append(own.to(leaf.dtype))
        self._sum([part for part, share in zip(found, shares, strict=True) if share.common])
        return found

    def _own(self, parts: list[Tensor], like: Tensor) -> Tensor:
        """The own part of a vector that was summed up so."""
        shares = [self.spread.exchange.shares[name] for name in self.leaves]
        self._sum([part for part, share in zip(parts, shares, strict=True) if share.common])
        own = [p.reshape(-1)[s.own] if s.common else p for p, s in zip(parts, shares, strict=True)]
        return torch.cat([part.to(like.dtype) for part in own])

    def _sum(self, parts: list[Tensor]) -> None:
        """Over all processes, in place, in one message."""
        if parts:
            flat = torch.cat([part.reshape(-1) for part in parts])
            with together():
                dist.all_reduce(flat)
            for part, total in zip(parts, torch.split(flat, [part.numel() for part in parts]), strict=True):
                part.copy_(total.view_as(part))
