"""Frobenius and spectral norms, of any operator."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from ...operators import Counted, LinearOperator, Matrix
from ...operators.derived import OnSameVectors
from ...results.spectra import Estimate
from ...rng import Rng
from ..checked import with_check
from ..eigensolver import eigenpairs
from ..exact import exact_matrix, is_small
from ..remembered import Remembered
from ..validation import multiply, prepare, require_positive, require_products
from .squared_norm import SquaredNorm
from .traces import estimate_trace, grown


@with_check
def frobenius_norm(
    op: Matrix, tol: float = 0.01, *, max_products: int | None = None, rng: Rng | int | None = None
) -> Estimate:
    """‖A‖_F, until the standard error is at most tol · ‖A‖_F.

    Of a symmetric matrix what a sketch sees on both sides is known, and probes test the rest: two products per probe, few
    probes where the spectrum decays. Exact when n ≤ 200, and up to n = 2000 where sampling does not meet the tolerance: never
    more than n products. Of a general matrix √tr(AᵀA) by XTrace, four products per probe.
    """
    require_positive("tol", tol)
    counted = prepare(op, symmetric=False)
    before = counted.count
    require_products(max_products, 4 if counted.symmetric else 8, "a Frobenius norm")
    if is_small(counted, max_products):
        value = float(torch.linalg.matrix_norm(exact_matrix(counted)))
        return Estimate(value, 0.0, counted.count - before, "dense", exact=True)
    limit = max(8, min(counted.shape[1], 2000)) if max_products is None else max_products
    source = Rng.of(rng).child("frobenius")
    if not counted.symmetric:
        square = estimate_trace(Counted(Gram(counted)), "xtrace", 2 * tol, limit // 2, source, "squared norm")
        return _root(square, counted.count - before)
    known = Remembered.if_small(counted, limit)
    with warnings.catch_warnings():
        if isinstance(known, Remembered):
            warnings.simplefilter("ignore")  # what sampling misses is multiplied out
        square = grown(SquaredNorm(known, source), "sketch", 2 * tol, limit, "squared norm")
    if isinstance(known, Remembered) and square.stderr > 2 * tol * float(square.value):
        value = float(torch.linalg.vector_norm(known.layout.norms(known.fill())))
        return Estimate(value, 0.0, counted.count - before, "all products", exact=True)
    return _root(square, counted.count - before)


def _root(square: Estimate, products: int) -> Estimate:
    value = math.sqrt(max(float(square.value), 0.0))
    stderr = float(square.stderr) / (2 * value) if value else float(square.stderr) ** 0.5
    return Estimate(value, stderr, products, square.method, square.exact)


@with_check
def spectral_norm(
    op: Matrix, tol: float = 1e-3, *, max_products: int | None = None, rng: Rng | int | None = None
) -> Estimate:
    """‖A‖₂ = max |λ| (largest singular value for a general matrix), by Lanczos; `stderr` bounds the error.

    For a symmetric operator an eigenvalue lies within the residual of the Ritz value, which is what `stderr` reports.
    """
    require_positive("tol", tol)
    counted = prepare(op, symmetric=False)
    before = counted.count
    if counted.symmetric:
        found = eigenpairs(counted, 1, which="magnitude", tol=tol, max_products=max_products, rng=rng)
        value, error = abs(float(found.values[0])), float(found.residuals[0])
        return Estimate(value, error, counted.count - before, "lanczos", exact=is_small(counted, max_products))
    require_products(max_products, 2, "a singular value")
    budget = None if max_products is None else max_products // 2
    found = eigenpairs(Gram(counted), 1, tol=tol, max_products=budget, rng=rng)
    value = math.sqrt(max(float(found.values[0]), 0.0))
    error = float(found.residuals[0]) / value if value else float(found.residuals[0]) ** 0.5
    return Estimate(value, error, counted.count - before, "lanczos", exact=is_small(counted, max_products))


class Gram(OnSameVectors):
    """AᵀA, for two products with A."""

    def __init__(self, inner: LinearOperator) -> None:
        self.inner = inner

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape[1], self.inner.shape[1]

    @property
    def fingerprint(self) -> str:
        return f"Gram({self.inner.fingerprint})"

    def _apply(self, block: Tensor) -> Tensor:
        return self.inner._apply_adjoint(multiply(self.inner, block))
