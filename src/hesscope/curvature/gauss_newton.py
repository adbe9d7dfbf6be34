"""Gauss-Newton and Fisher matrices: Jᵀ M J with a small matrix M per row."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..errors import refuse
from ..operators import LinearOperator
from ..results.spectra import Estimate
from ..rng import Rng
from ..space import ParameterSpace
from .engines.jacobians import JacobianGraphs
from .hessian import CurvatureOperator
from .losses.base import OutputLoss
from .problem import Problem


class GaussNewton(CurvatureOperator):
    """G = Σ_r J_rᵀ (∂²ℓ_r/∂f²) J_r, exactly, with the loss's curvature evaluated without cancellation."""

    def __init__(self, problem: Problem) -> None:
        problem.need_outputs(f"the {type(self).__name__} matrix")
        super().__init__(problem)
        self._engine = JacobianGraphs(problem)

    def _middle(self, rows: OutputLoss, image: Tensor, first_row: int) -> Tensor:
        return rows.curvature(image)

    def structured_trace(self, tol: float) -> Estimate | None:
        """tr G from per-example gradients, where the network has the structure."""
        from .structured import structured_trace

        return structured_trace(self, tol, with_functional=False) if self._is_gauss_newton else None

    def structured_diagonal(self, tol: float) -> Estimate | None:
        """diag G from per-example gradients, where the network has the structure."""
        from .structured import structured_diagonal

        return structured_diagonal(self, tol, with_functional=False) if self._is_gauss_newton else None

    @property
    def _is_gauss_newton(self) -> bool:
        return True

    def _sum_products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        return self._engine.sandwich(columns, rows, block, self._middle)

    def _restricted(self, rows: ParameterSpace, columns: ParameterSpace) -> GaussNewton:
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        CurvatureOperator.__init__(part, self.problem, rows, columns)
        return part


class Fisher(GaussNewton):
    """F = Σ_r E[s_r s_rᵀ], s_r the gradient of row r's log-likelihood; a row is what the loss counts.

    kind="exact": expectation over the model's own targets; for a log-likelihood this is the Gauss-Newton matrix.
    kind="mc": the same with `samples` drawn targets per row, fixed by `rng`. kind="empirical": the data's targets.
    """

    def __init__(
        self,
        problem: Problem,
        kind: Literal["mc", "empirical", "exact"] = "mc",
        samples: int = 1,
        rng: Rng = Rng(0),  # noqa: B008 (frozen)
    ) -> None:
        if kind not in ("mc", "empirical", "exact"):
            refuse("kind must be 'mc', 'empirical' or 'exact'", f"{kind!r}", "See the docstring for which is which.")
        if samples < 1:
            refuse("samples must be >= 1", f"{samples}", "One sample per row is usual.")
        super().__init__(problem)
        self.kind, self.samples, self.rng = kind, samples, rng

    @property
    def _is_gauss_newton(self) -> bool:
        return self.kind == "exact"

    def _middle(self, rows: OutputLoss, image: Tensor, first_row: int) -> Tensor:
        if self.kind == "exact":
            return rows.curvature(image)
        total = torch.zeros_like(image)
        for sample in range(self.samples if self.kind == "mc" else 1):
            if self.kind == "mc":
                slope = rows.sampled_output_gradient(self.rng.child("fisher", sample, first_row).torch())
            else:
                slope = rows.example_output_gradient()
            total += slope * (slope * image).sum(-1, keepdim=True)
        return total / (self.samples if self.kind == "mc" else 1)


class Jacobian(LinearOperator):
    """J = ∂f/∂θ of every output of every row, shape `(rows x outputs, parameters)`, in the order of the data."""

    symmetric = False

    def __init__(self, problem: Problem) -> None:
        problem.need_outputs("the Jacobian")
        if problem.distributed:
            refuse("a Jacobian lives in one process", "a distributed problem", "Use GaussNewton, which is reduced.")
        self.problem = problem
        self._engine = JacobianGraphs(problem)
        self._rows = self._engine.row_count()

    @property
    def shape(self) -> tuple[int, int]:
        return self._rows, self.problem.space.size

    @property
    def dtype(self) -> torch.dtype:
        return self.problem.dtype

    @property
    def device(self) -> torch.device:
        return self.problem.device

    def _apply(self, block: Tensor) -> Tensor:
        return self._engine.push(self.problem.space, block.T.contiguous()).T

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        return self._engine.pull(self.problem.space, block.T.contiguous()).T
