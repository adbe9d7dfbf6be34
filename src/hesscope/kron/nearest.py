"""The nearest Kronecker product of a layer's Hessian: min ‖H - A ⊗ B‖_F (Van Loan), without forming H."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..curvature.gradient_mode import differentiable
from ..operators import Kronecker
from ..operators.autocast import own_types
from .layer_operator import LayerHessian
from .subspaces import top_of_kronecker


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


@own_types()
def nearest_kronecker(
    op: LayerHessian, guess: Tensor, tol: float = 1e-4, max_iterations: int = 100
) -> NearestKronecker:
    """The top singular pair of the rearranged Hessian Σ vec(M_ts) vec(x_t x_sᵀ)ᵀ, by bidiagonalisation from a guess of A.

    E[M] is a good guess: a few iterations do, each with one application of the rearranged matrix and one of its
    transpose. The error of σ is of the order of the squared residual, so `tol` need not be small.
    """
    start = (
        _symmetric(guess.double()) if bool(guess.any()) else torch.eye(len(guess), dtype=torch.float64, device="cpu")
    )
    left = [start / torch.linalg.matrix_norm(start)]
    right: list[Tensor] = []
    small = torch.zeros(max_iterations + 1, max_iterations, dtype=torch.float64, device="cpu")  # lower bidiagonal
    for step in range(max_iterations):
        b, alpha = _new_direction(_symmetric(against_outputs(op, left[-1])), right)
        if alpha == 0 and step == 0:
            return NearestKronecker(0 * left[0], b, 0.0, 0.0, 0)
        right.append(b)
        small[step, step] = alpha
        a, beta = _new_direction(_symmetric(against_inputs(op, b)), left)
        left.append(a)
        small[step + 1, step] = beta
        _, sigmas, v = torch.linalg.svd(small[: step + 2, : step + 1], full_matrices=False)
        residual = float(beta * v[0, -1].abs() / sigmas[0])
        if residual <= tol:
            break
    best = torch.einsum("k,kij->ij", v[0], torch.stack(right))
    # Of the two signs the one that makes both factors of a positive semi-definite H so.
    weights, best = (v[0], best) if float(best.trace()) >= 0 else (-v[0], -best)
    image = torch.einsum("k,kij->ij", small[: len(left), : len(right)] @ weights, torch.stack(left))
    return NearestKronecker(image, best, float(sigmas[0]), residual, step + 1)


def _new_direction(image: Tensor, known: list[Tensor]) -> tuple[Tensor, float]:
    """What is new in `image`, at unit length, and how long it was."""
    for _ in range(2):  # twice, so that rounding does not bring back what was taken out
        for other in known:
            image = image - (image * other).sum() * other
    length = float(torch.linalg.matrix_norm(image))
    return (image / length if length > 0 else image), length


@differentiable()
def against_inputs(op: LayerHessian, b: Tensor) -> Tensor:
    """E[Σ_ts M_ts (x_tᵀ B x_s)], `(m, m)` in float64."""
    return _scaled(op, sum(form.against_inputs(b.to(op.device, op.dtype)).double() for form in op.all_blocks()))


@differentiable()
def against_outputs(op: LayerHessian, a: Tensor) -> Tensor:
    """E[Σ_ts <M_ts, A> x_t x_sᵀ], `(n, n)` in float64."""
    return _scaled(op, sum(form.against_outputs(a.to(op.device, op.dtype)).double() for form in op.all_blocks()))


def _scaled(op: LayerHessian, total: Tensor | int) -> Tensor:
    assert isinstance(total, Tensor)
    return op.problem.all_sum(total).mul(op.problem.scale).cpu()


def _symmetric(t: Tensor) -> Tensor:
    return (t + t.T) / 2
