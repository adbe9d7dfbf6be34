"""The exact Hessian of one layer's weight: H = E[Σ_ts M_ts ⊗ x_t x_sᵀ], multiplied by GEMMs."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import islice
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from ..curvature import Hessian, Problem
from ..curvature.gradient_mode import differentiable
from ..curvature.of_problem import OfProblem
from ..layers import facts_of
from ..operators.finite import need_finite
from .chunked.chunks import ChunkedData
from .chunked.curvature_blocks import CurvatureBlock, HeldBlock, block_of
from .chunked.lazy_block import LazyBlock, LazyFactors
from .curvature_choice import Curvature, LayerCurvature, layer_curvature
from .directions import Directions, refuse_sampled
from .layer_proof import proven

_MOST_PASSES = 512  # for the matrices of a trial; beyond, only its products by double backward are tried


def layer_hessian(
    problem: Problem, layer: str, *, curvature: Curvature = "auto", directions: Directions = "auto"
) -> LayerHessian:
    """H = E[M ⊗ x xᵀ], exactly, over the layer's weight in torch's (row-major) order; no autodiff per vector.

    A weight that is stored with its inputs first (GPT-2's Conv1D) is read as the matrix W of z = W x, row by row.

    Inputs x and output Hessians M of all data are computed once: one backward pass per class where the network behind
    the layer is piecewise linear, else one double-backward pass per output (tried on a few examples, see `.curvature`).
    Then a product costs 4 N P m n operations, or less (docs/theory/decoupling.md). What does not fit into the problem's
    memory is computed again for every block of vectors. Layers over tokens or positions, and convolutions with stride,
    padding, dilation and groups, are exact: all pairs of positions of an example are summed. So are the projections
    inside nn.MultiheadAttention ("attention.in_proj", "attention.out_proj"). The first product is preceded by a proof
    on a few examples, `.verified`.

    `curvature`: "auto", or "gauss_newton" / "second_derivative" to insist on one. Over many interacting positions (the
    layers of a transformer) "auto" takes the Gauss-Newton matrix where second derivatives take more than seconds, and
    `.curvature` says so. Where factors of all `directions` would take too many passes, products are those of autodiff
    behind the layer: slower, and as exact.
    """
    return LayerHessian(problem, layer_curvature(problem, layer, curvature, directions))


class LayerHessian(OfProblem):
    """The symmetric operator that `layer_hessian` returns; `.curvature` says how M was found and whether it is exact."""

    def __init__(self, problem: Problem, how: LayerCurvature) -> None:
        self.problem, self.how, self.layer = problem, how, how.layer
        self._data = ChunkedData(problem, [how])
        self._kept: list[HeldBlock] = []
        self._built = self._needs_no_proof = False
        self._building = RLock()
        self._everything_kept = False
        self.memo: dict[str, Any] = {}  # what other functions found out about it, so that they need not again

    @property
    def curvature(self) -> str:
        return self.how.curvature

    @property
    def shape(self) -> tuple[int, int]:
        return self.layer.size, self.layer.size

    @property
    def fingerprint(self) -> str:
        return f"LayerHessian({self.layer.name}, {self.curvature}, {Hessian(self.problem).fingerprint})"

    @property
    def verified(self) -> str:
        """Products on a few examples against double backward, and that against differences; wrong ones are refused."""
        return self._prove()

    def _prove(self) -> str:
        return proven(self.problem, self.how, self._on_probe)

    def _on_probe(self) -> LayerHessian:
        """The same operator on a few examples: what proves this one."""
        few = LayerHessian(self.problem.probe, self.how)
        few._data.facts = facts_of(self.problem)
        few._needs_no_proof = True
        few._built = not self.how.gauss_newton and self.how.positions * self.layer.outputs > _MOST_PASSES
        return few

    @property
    def preferred_block(self) -> int:
        return 1 if self.how.positions == 1 else 8

    def all_blocks(self) -> Iterator[HeldBlock]:
        """Every chunk of the data; those beyond the memory are computed anew."""
        if self.how.directions:
            refuse_sampled(self.layer.name, "what is not a product with the layer's Hessian")
        self._build()
        yield from self._kept
        for chunk in self._beyond():
            yield self._block(chunk)

    def held_blocks(self) -> list[HeldBlock] | None:
        """All chunks, if all are in this process's memory."""
        self._build()
        return self._kept if self._everything_kept and not self.problem.distributed else None

    def _blocks(self) -> Iterator[CurvatureBlock]:
        self._build()
        yield from self._kept
        for chunk in self._beyond():
            # One double-backward pass per vector costs less than the P m passes that M itself would.
            if self.how.directions:
                yield LazyFactors(self._data.run(chunk))
            else:
                yield self._block(chunk) if self.how.gauss_newton else LazyBlock(self._data.run(chunk))

    def _beyond(self) -> Iterator[Any]:
        return iter(()) if self._everything_kept else islice(self._data.chunks(), len(self._kept), None)

    def _block(self, chunk: Any) -> HeldBlock:
        return block_of(self._data.layer_chunks(chunk)[0], self.layer.outputs)

    @differentiable()
    def _build(self) -> None:
        """Keep chunks while they fit; called by the first product."""
        with self._building:  # a thread must not see a part of the chunks for all of them
            if not self._built:
                self._keep()
            self._built = True

    def _keep(self) -> None:
        if not self._needs_no_proof:
            self._prove()
        if self.how.directions:
            return
        kept: list[HeldBlock] = []
        held = False
        try:
            for chunk in self._data.chunks():
                block = self._block(chunk)
                if not self.problem.memory_budget.reserve(block.bytes()):
                    break
                kept.append(block)
            else:
                held = True
        except BaseException:
            self.problem.memory_budget.release(sum(block.bytes() for block in kept))
            raise
        self._kept, self._everything_kept = kept, held
        weakref.finalize(self, self.problem.memory_budget.release, sum(block.bytes() for block in kept))

    @differentiable()
    def _apply(self, block: Tensor) -> Tensor:
        v = block.T.reshape(-1, self.layer.outputs, self.layer.inputs)
        total = torch.zeros_like(v)
        for part in self._blocks():
            total += part.products(v)
        total = self.problem.all_sum(total).mul_(self.problem.scale)
        return need_finite(total, f"products of {self!r}").flatten(1).T
