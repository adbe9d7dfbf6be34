"""Hessian products by double backward through a kept gradient graph."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..errors import refuse
from ..operators import Layout, LinearOperator
from ..results.spectra import Estimate
from ..space import ParameterSpace
from .distributed import ShardedLayout
from .engines.graphs import GradientGraphs
from .engines.linearized import LinearizedGradient
from .problem import Problem

Method = Literal["auto", "kept", "batched", "linearize"]


class CurvatureOperator(LinearOperator):
    """A square matrix over the problem's parameters, or a block of it, summed over data and scaled as the loss is."""

    def __init__(
        self, problem: Problem, rows: ParameterSpace | None = None, columns: ParameterSpace | None = None
    ) -> None:
        self.problem = problem
        self.rows = rows or problem.space
        self.columns = columns or problem.space
        self.symmetric = self.rows == self.columns

    def _sum_products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        """Σ_batches A[rows, columns] v for vectors as rows `(k, n)`, contiguous or not; subclasses define it."""
        raise AssertionError("operators define _sum_products")

    def _restricted(self, rows: ParameterSpace, columns: ParameterSpace) -> CurvatureOperator:
        """The same engine on a block."""
        raise AssertionError("operators define _restricted")

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.size, self.columns.size

    @property
    def dtype(self) -> torch.dtype:
        return self.problem.dtype

    @property
    def device(self) -> torch.device:
        return self.problem.device

    @property
    def layout(self) -> Layout:
        return ShardedLayout.here(self.columns.size) if self.problem.distributed else Layout(self.columns.size)

    @property
    def verdict(self) -> str:
        """What hs.check said of this problem, for the record of results."""
        return "unchecked" if self.problem.verdict is None else str(self.problem.verdict)

    @property
    def fingerprint(self) -> str:
        """What a resumed run must have in common with the killed one: parameters by value, data by its loss."""
        numbers = [float(t.double().norm()) for t in self.problem.parameters.values()]
        # Nine digits: sums over threads may differ in the last ones.
        values = [f"{number:.9g}" for number in (*numbers, *self.problem.totals)]
        return repr((type(self).__name__, self.rows.names, self.columns.names, values))

    def block(self, rows: str | list[str], columns: str | list[str] | None = None) -> CurvatureOperator:
        """The block of the parameters that `rows` (and `columns`) select: its products cost less than the whole's."""
        row_space = self.rows.select(rows)
        return self._restricted(row_space, row_space if columns is None else self.columns.select(columns))

    def _apply(self, block: Tensor) -> Tensor:
        return self._scaled(self.columns, self.rows, block)

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        return self._scaled(self.rows, self.columns, block)

    def _scaled(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        sharded = self.problem.distributed
        whole = ShardedLayout.here(columns.size).gather(block) if sharded else block
        out = self._sum_products(columns, rows, whole.T)
        out = self.problem.all_sum(out).mul_(self.problem.scale)
        if sharded:
            out = out[:, ShardedLayout.here(rows.size).local]
        return out.T


class Hessian(CurvatureOperator):
    """H = ∂²L/∂θ², exactly, of the loss the user trains.

    `method`: "kept" (double backward, graph reused), "batched" (the same for many vectors at once), "linearize"
    (forward-over-reverse, traced once), or "auto": what hs.check found fastest among the right ones, else "kept".
    """

    _through_loss = True

    def __init__(self, problem: Problem, method: Method = "auto") -> None:
        super().__init__(problem)
        if method not in ("auto", "kept", "batched", "linearize"):
            refuse("method must be auto, kept, batched or linearize", f"{method!r}", "Leave it at 'auto'.")
        if method == "auto":
            method = "kept" if problem.verdict is None else problem.verdict.method
        self.method = method
        self._engine: GradientGraphs | LinearizedGradient
        if method == "linearize" and self._through_loss:
            self._engine = LinearizedGradient(problem)
        else:
            self._engine = GradientGraphs(problem, self._through_loss, "batched" if method == "batched" else "kept")

    @property
    def preferred_block(self) -> int:
        return 8 if self.method == "batched" else 1

    def structured_trace(self, tol: float) -> Estimate | None:
        """tr H from per-example gradients, where the network has the structure."""
        from .structured import structured_trace

        return structured_trace(self, tol, with_functional=True)

    def structured_diagonal(self, tol: float) -> Estimate | None:
        """diag H from per-example gradients, where the network has the structure."""
        from .structured import structured_diagonal

        return structured_diagonal(self, tol, with_functional=True)

    def _restricted(self, rows: ParameterSpace, columns: ParameterSpace) -> Hessian:
        part = object.__new__(type(self))
        CurvatureOperator.__init__(part, self.problem, rows, columns)
        part.method, part._engine = self.method, self._engine
        return part

    def _sum_products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        return self._engine.products(columns, rows, block)


class FunctionalHessian(Hessian):
    """R = Σ_c ∂L/∂f_c ∂²f_c/∂θ² = H - G: what the Gauss-Newton matrix leaves out, computed directly."""

    _through_loss = False

    def __init__(self, problem: Problem) -> None:
        problem.need_outputs("the functional Hessian")
        super().__init__(problem, method="kept")

    def structured_trace(self, tol: float) -> Estimate | None:
        return None  # what the structure knows is the Gauss-Newton part

    def structured_diagonal(self, tol: float) -> Estimate | None:
        return None
