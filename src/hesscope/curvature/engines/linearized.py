"""Hessian products by forward-over-reverse, traced once: torch.func.linearize(grad)."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functionalize, grad, linearize

from ...space import ParameterSpace
from ..problem import Problem, ScalarLoss
from .graphs import in_turn


class LinearizedGradient:
    """θ ↦ Σ ∇ℓ, linearised at θ for all data at once. Right through normalisation layers, and fast for convolutions.

    It holds every intermediate of the gradient, so it is for data that fits; hs.check offers it only then.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._product: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None

    def _total(self, parameters: dict[str, Tensor]) -> Tensor:
        total: Tensor | None = None
        for batch in self.problem.batches:
            terms = self.problem.evaluate(batch, parameters, traced=True)
            part = terms.total if isinstance(terms, ScalarLoss) else terms.total()
            total = part if total is None else total + part
        assert total is not None
        return total

    def build(self) -> None:
        """Trace once."""
        if self._product is None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Attempted to insert a get_attr Node")
                _, self._product = linearize(functionalize(grad(self._total)), dict(self.problem.parameters))

    def products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        """Σ_batches H[rows, columns] v for vectors as rows: `(k, n)` to `(k, m)`, not yet scaled."""
        self.build()
        assert self._product is not None
        out = torch.empty(block.shape[0], rows.size, dtype=block.dtype, device=block.device)
        for vector, row in zip(in_turn(block), out, strict=True):
            given = dict(zip(columns.names, columns.unpack(vector), strict=True))
            tangents = {
                name: given[name].to(p.dtype) if name in given else torch.zeros_like(p)
                for name, p in self.problem.parameters.items()
            }
            product = self._product(tangents)
            row.copy_(rows.pack([product[name] for name in rows.names], row))
        return out
