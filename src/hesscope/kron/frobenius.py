"""‖H - A ⊗ B‖_F of a layer's Hessian: exactly where that is affordable, else with a standard error."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor

from ..linalg.estimate import mean_and_stderr
from ..operators import Kronecker, LinearOperator
from ..rng import Rng
from .forms import FullForm
from .layer_hessian import LayerHessian
from .nearest import against_inputs

EXACT_FLOPS = 1e12
_PROBES = 16


def squared_distance(
    op: LayerHessian, kron: Kronecker | None, top: Tensor | None = None, exact_flops: float = EXACT_FLOPS
) -> tuple[float, float]:
    """(‖H - A ⊗ B‖_F², its standard error); without `kron`, ‖H‖_F². The error is 0 where the value is exact.

    Exact by columns (m n products) for small layers, or by Gram matrices of per-example gradients for little data;
    else the part in span(top), eigenvectors of H, is exact and random probes estimate the rest.
    """
    forms = op.held_forms()
    if forms is not None:
        columns = op.shape[0] * sum(form.product_flops() for form in forms)
        pairs = sum(form.inner_flops(other) for i, form in enumerate(forms) for other in forms[: i + 1])
        # Pairs give ‖H‖ once for every Kronecker product; columns are needed anew for each.
        by_columns = columns <= pairs / 4
        if (columns if by_columns else pairs) <= exact_flops:
            return (_by_columns(op, kron) if by_columns else _by_pairs(op, kron, forms)), 0.0
    return _by_probes(op - kron if kron is not None else op, top)


def _by_columns(op: LayerHessian, kron: Kronecker | None) -> float:
    n, total = op.shape[0], 0.0
    difference: LinearOperator = op if kron is None else op - kron
    for start in range(0, n, 256):
        stop = min(start + 256, n)
        eye = torch.zeros(n, stop - start, dtype=op.dtype, device=op.device)
        eye[torch.arange(start, stop), torch.arange(stop - start)] = 1
        total += float(difference.apply(eye).double().square().sum())
    return total


def _by_pairs(op: LayerHessian, kron: Kronecker | None, forms: Sequence[FullForm]) -> float:
    norm = op.squared_norm
    if norm is None:
        pairs = sum(f.inner(f) + 2 * sum(f.inner(other) for other in forms[:i]) for i, f in enumerate(forms))
        norm = op.squared_norm = pairs * op.problem.scale**2
    if kron is None:
        return norm
    inner = float((against_inputs(op, kron.right) * kron.left.cpu().double()).sum())
    return max(0.0, norm - 2 * inner + float(kron.left.double().square().sum() * kron.right.double().square().sum()))


def _by_probes(op: LinearOperator, top: Tensor | None) -> tuple[float, float]:
    n = op.shape[0]
    q = torch.zeros(n, 0, dtype=op.dtype, device=op.device) if top is None else torch.linalg.qr(top.to(op.dtype))[0]
    inside = float(op.apply(q).double().square().sum()) if q.shape[1] else 0.0
    noise = torch.randn(n, _PROBES, generator=Rng(0).child("frobenius").torch(), dtype=torch.float64).to(q)
    outside = noise - q @ (q.T @ noise)
    squares = op.apply(outside).double().square().sum(0)
    mean, stderr = mean_and_stderr(squares.cpu().numpy())
    return inside + mean, stderr


def relative_error(op: LayerHessian, kron: Kronecker, top: Tensor | None = None) -> tuple[float, float]:
    """‖H - A ⊗ B‖_F / ‖H‖_F, and its standard error."""
    gap, gap_stderr = squared_distance(op, kron, top)
    norm, norm_stderr = squared_distance(op, None, top)
    if not gap > 0 or not norm > 0:
        return 0.0, 0.0
    value = sqrt(gap / norm)
    return value, 0.5 * value * (gap_stderr / gap + norm_stderr / norm)
