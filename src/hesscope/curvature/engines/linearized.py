"""Hessian products by forward-over-reverse, traced once: torch.func.linearize(grad)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import inf
from threading import RLock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.func import functionalize, grad, linearize

from ...errors import HesscopeError
from ...rng import Rng
from ...space import ParameterSpace
from ..problem import Problem, ScalarLoss
from .backward import hessian_product, random_direction
from .graphs import GradientGraphs
from .memory import is_out_of_memory

_ROUNDING = 10  # in float32 6e-5 of a product's length, in float64 2e-11
_SECONDS_PER_NODE, _SECONDS = 0.25, 5.0  # of tracing, measured on networks of 27 to 221 nodes


class LinearizedGradient:
    """θ ↦ Σ ∇ℓ, linearised at θ for all data at once. Right through normalisation layers, and fast for convolutions.

    It holds every intermediate of the gradient, so it is for data that fits. What was traced must give the products of
    double backward on all the data, or those are used instead.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.method = problem, "linearize"
        self.fallback: GradientGraphs | None = None
        self.error = 0.0  # relative to double backward
        self._product: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None
        self._building = RLock()

    def _total(self, parameters: dict[str, Tensor]) -> Tensor:
        total: Tensor | None = None
        for batch in self.problem.batches:
            terms = self.problem.evaluate(batch, parameters, traced=True)
            part = terms.total if isinstance(terms, ScalarLoss) else terms.total()
            total = part if total is None else total + part
        assert total is not None
        return total

    def build(self) -> None:
        """Trace once, and compare one product with double backward."""
        with self._building:  # no thread uses what another has not yet proven
            if self._product is None and self.fallback is None:
                self._trace()

    def _trace(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Attempted to insert a get_attr Node")
                _, self._product = linearize(functionalize(grad(self._total)), dict(self.problem.parameters))
            right = self._is_right()
        except HesscopeError:
            raise
        except Exception as error:  # operations without a forward derivative raise whatever they like
            if is_out_of_memory(error):
                raise
            self.error, right = inf, False
        if not right:
            self._product, self.fallback = None, GradientGraphs(self.problem)

    def _is_right(self) -> bool:
        """Whether two products in a row are those of double backward, up to rounding: padding rows, ignored targets and
        constants that change in place are where forward mode goes another way."""
        problem = self.problem
        for index, batch in enumerate(problem.batches):
            problem.confirm(index, problem.value_of(batch)[0])  # the trace is of what the model did when it was made
        v = random_direction(problem, Rng(0).child("linearize"))
        truth = hessian_product(problem, problem.batches, problem.parameters, v)
        found = self._traced_products(problem.space, problem.space, torch.stack([v, v]))
        self.error = float((found - truth).norm(dim=1).max()) / max(float(truth.norm()), 1e-300)
        return bool(self.error <= _ROUNDING * torch.finfo(problem.dtype).eps ** 0.75)

    def products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        """Σ_batches H[rows, columns] v for vectors as rows: `(k, n)` to `(k, m)`, not yet scaled."""
        self.build()
        if self.fallback is not None:
            return self.fallback.products(columns, rows, block)
        return self._traced_products(columns, rows, block)

    def _traced_products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        assert self._product is not None
        out = torch.empty(block.shape[0], rows.size, dtype=block.dtype, device=block.device)
        for vector, row in zip(block, out, strict=True):
            given = dict(zip(columns.names, columns.unpack(vector), strict=True))
            tangents = {
                name: given[name].to(p.dtype) if name in given else torch.zeros_like(p)
                for name, p in self.problem.parameters.items()
            }
            product = self._product(tangents)
            row.copy_(rows.pack([product[name] for name in rows.names], row))
        return out


_TRACED: WeakKeyDictionary[Problem, LinearizedGradient] = WeakKeyDictionary()


def linearized_gradient(problem: Problem) -> LinearizedGradient:
    """The traced gradient of a problem, made once: tracing takes much longer than a product."""
    if problem not in _TRACED:
        _TRACED[problem] = LinearizedGradient(problem)
    return _TRACED[problem]


def seconds_to_trace(problem: Problem) -> float:
    """How long tracing will take, from the number of operations in the gradient of the first batch."""
    gradients = problem.batch_gradient(next(iter(problem.batches)), problem.leaves(), create_graph=True)
    waiting = [g.grad_fn for g in gradients if g is not None and g.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return _SECONDS + _SECONDS_PER_NODE * len(seen)
