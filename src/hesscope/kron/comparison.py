"""How good the conjecture is: eigenvalues, overlap, spectral and Frobenius errors, for every Kronecker form."""

from __future__ import annotations

import numpy as np

from ..linalg import eigenpairs, spectral_norm
from ..measure import Array
from ..operators import Kronecker
from ..operators.autocast import own_types
from ..results.kronecker import KroneckerComparison, KroneckerErrors
from .factors import Decoupling, Reduction
from .frobenius import Distances, rounding_of
from .layer_operator import LayerHessian
from .subspaces import check_k, nested_overlaps


@own_types()
def compare(d: Decoupling, k: int, tol: float) -> KroneckerComparison:
    """The k largest eigenpairs of H by Lanczos on GEMM products, against those of the Kronecker product."""
    op = d.exact
    check_k(k, op.shape[0])
    true = eigenpairs(op, k=k, tol=tol)
    values, vectors = d.eigenpairs(k)
    kron = d.operator
    op.memo.setdefault("norm", _norm(op, true.values))
    op.memo.setdefault("distances", Distances(op, true.vectors))
    fro, fro_stderr = op.memo["distances"].relative(kron)
    return KroneckerComparison(
        d.layer,
        op.shape[0],
        d.curvature,
        d.reduction,
        true.values,
        values.numpy(),
        true.residuals,
        nested_overlaps(true.vectors.cpu(), vectors),
        _spectral_error(op, kron, fro, op.memo["norm"]),
        fro,
        fro_stderr,
        true.vectors,
        vectors,
        true.check,
    )


@own_types()
def kronecker_errors(d: Decoupling) -> KroneckerErrors:
    """Relative errors of expand (33), reduce, K-FAC reduce and the nearest Kronecker product."""
    op = d.exact
    if "distances" not in op.memo:
        top = eigenpairs(op, k=min(20, op.shape[0]), tol=1e-3)
        op.memo.update(norm=_norm(op, top.values), distances=Distances(op, top.vectors))
    norm, distances = op.memo["norm"], op.memo["distances"]
    kinds: tuple[Reduction, ...] = ("expand",) if d.positions == 1 else ("expand", "reduce", "kfac_reduce")
    forms: dict[str, Kronecker] = {kind: d.with_reduction(kind).operator for kind in kinds}
    best = d.nearest()
    forms["nearest"] = Kronecker(best.left.to(op.device, op.dtype), best.right.to(op.device, op.dtype))
    fro = [distances.relative(kron) for kron in forms.values()]
    return KroneckerErrors(
        d.layer,
        tuple(forms),
        np.array([_spectral_error(op, kron, f[0], norm) for kron, f in zip(forms.values(), fro, strict=True)]),
        np.array([f[0] for f in fro]),
        np.array([f[1] for f in fro]),
        best.residual,
        op.verified,
    )


def _spectral_error(op: LayerHessian, kron: Kronecker, frobenius: float, norm: float) -> float:
    # What is left of an exact identity is rounding, which is not even symmetric.
    if frobenius <= rounding_of(op.dtype) or norm == 0:
        return frobenius
    return float(spectral_norm(op - kron)) / norm


def _norm(op: LayerHessian, top_values: Array) -> float:
    """‖H‖; where it is positive semi-definite that is the largest eigenvalue."""
    return float(top_values[0]) if op.how.gauss_newton else float(spectral_norm(op))
