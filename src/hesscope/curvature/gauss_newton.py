"""The Gauss-Newton matrix: Jᵀ M J with the loss's curvature M in the outputs."""

from __future__ import annotations

from torch import Tensor

from ..results.spectra import Estimate
from ..rng import Rng
from ..space import ParameterSpace
from .engines.jacobians import JacobianGraphs
from .given_problem import need_problem
from .hessian import CurvatureOperator
from .losses.base import OutputLoss
from .problem import Problem
from .proofs.derivatives import Proof, prove_jacobian


class GaussNewton(CurvatureOperator):
    """G = Σ_r J_rᵀ (∂²ℓ_r/∂f²) J_r, exactly, with the loss's curvature evaluated without cancellation."""

    def __init__(self, problem: Problem, *, unchecked: bool = False) -> None:
        need_problem(problem).need_outputs(f"the {type(self).__name__} matrix")
        super().__init__(problem, unchecked=unchecked)
        self._engine = JacobianGraphs(problem, without_logits=True)

    def _middle(self, rows: OutputLoss, image: Tensor, first_row: int) -> Tensor:
        return rows.curvature(image)

    def known_trace(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        """tr G from per-example gradients, where the network has the structure."""
        from ..layers.known_traces import known_trace

        return known_trace(self, tol, rng, max_products, with_functional=False) if self._is_gauss_newton else None

    def known_diagonal(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        """diag G from per-example gradients, where the network has the structure."""
        from ..layers.known_traces import known_diagonal

        return known_diagonal(self, max_products, with_functional=False) if self._is_gauss_newton else None

    @property
    def _is_gauss_newton(self) -> bool:
        return True

    def _sum_products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        return self._engine.sandwich(columns, rows, block, self._middle)

    def proofs(self) -> tuple[Proof, ...]:
        return (prove_jacobian(self.problem),)
