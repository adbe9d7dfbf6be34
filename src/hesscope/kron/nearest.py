"""The nearest Kronecker product of a layer's Hessian: min ‖H - A ⊗ B‖_F (Van Loan), without forming H."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..operators import Kronecker
from .layer_hessian import LayerHessian
from .overlap import top_of_kronecker


@dataclass(frozen=True, eq=False)
class NearestKronecker:
    """A ⊗ B = `left` ⊗ `right` (float64) with ‖H - A ⊗ B‖_F² = ‖H‖_F² - σ², σ = ‖A‖_F ‖B‖_F.

    `residual` says how well σ has converged, relative to σ.
    """

    left: Tensor
    right: Tensor
    sigma: float
    residual: float
    iterations: int

    @property
    def operator(self) -> Kronecker:
        """A ⊗ B in float64."""
        return Kronecker(self.left, self.right)

    def eigenpairs(self, k: int) -> tuple[Tensor, Tensor]:
        """The k largest eigenvalues of A ⊗ B and their vectors `(mn, k)`."""
        return top_of_kronecker(self.left, self.right, k)


def nearest_kronecker(
    op: LayerHessian, guess: Tensor, tol: float = 1e-4, max_iterations: int = 200
) -> NearestKronecker:
    """The top singular pair of the rearranged Hessian Σ vec(M_ts) vec(x_t x_sᵀ)ᵀ, by power iteration from a guess of A.

    Each iteration costs about one product with the Hessian. E[M] is a good guess. The error of
    σ is of the order of the squared residual, so `tol` need not be small.
    """
    a = guess.double() / torch.linalg.matrix_norm(guess.double())
    for step in range(1, max_iterations + 1):
        b = _symmetric(against_outputs(op, a))
        size = torch.linalg.matrix_norm(b)
        if size == 0:
            return NearestKronecker(0 * a, b, 0.0, 0.0, step)
        b = b / size
        image = _symmetric(against_inputs(op, b))
        residual = float(torch.linalg.matrix_norm(image - size * a) / size)
        sigma = float(torch.linalg.matrix_norm(image))
        if residual <= tol or step == max_iterations:
            break
        a = image / sigma
    return NearestKronecker(image, b, sigma, residual, step)


def against_inputs(op: LayerHessian, b: Tensor) -> Tensor:
    """E[Σ_ts M_ts (x_tᵀ B x_s)], `(m, m)` in float64."""
    return _scaled(op, sum(form.against_inputs(b.to(op.device, op.dtype)).double() for form in op.full_forms()))


def against_outputs(op: LayerHessian, a: Tensor) -> Tensor:
    """E[Σ_ts <M_ts, A> x_t x_sᵀ], `(n, n)` in float64."""
    return _scaled(op, sum(form.against_outputs(a.to(op.device, op.dtype)).double() for form in op.full_forms()))


def _scaled(op: LayerHessian, total: Tensor | int) -> Tensor:
    assert isinstance(total, Tensor)
    return op.problem.all_sum(total).mul(op.problem.scale).cpu()


def _symmetric(t: Tensor) -> Tensor:
    return (t + t.T) / 2
