"""Checks for anyone who writes an operator: `check_operator` is what our own suite uses."""

from __future__ import annotations

import torch
from torch import Tensor

from .operators import LinearOperator, as_operator
from .operators.autocast import own_types
from .rng import Rng


@own_types()
def check_operator(
    op: LinearOperator, dense: Tensor | None = None, tol: float = 1e-10, rng: Rng | int | None = None
) -> None:
    """Assert that an operator is linear, consistent over block shapes, equal to its adjoint and to `dense` if given.

    >>> from hesscope.operators import Dense
    >>> A = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    >>> check_operator(Dense(A), A)
    """
    source = Rng.of(rng).child("check-operator")
    op = as_operator(op)
    rows, columns = op.shape

    def draw(name: str, size: int, k: int) -> Tensor:
        return torch.randn(size, k, generator=source.child(name).torch(), dtype=torch.float64, device="cpu").to(
            op.device, op.dtype
        )

    V, U = draw("v", columns, 3), draw("u", rows, 3)
    AV = op @ V
    size = float(AV.norm()) or 1.0
    assert AV.shape == (rows, 3), f"A @ V must have shape {(rows, 3)}; got {tuple(AV.shape)}"
    alone = torch.stack([op @ V[:, j] for j in range(3)], 1)
    assert float((AV - alone).norm()) <= tol * size, "a block must give what its columns give"
    mixed = op @ (2 * V[:, 0] - 3 * V[:, 1])
    assert float((mixed - (2 * AV[:, 0] - 3 * AV[:, 1])).norm()) <= 10 * tol * size, "A must be linear"
    left, right = U.T @ AV, (op.T @ U).T @ V
    assert float((left - right).norm()) <= 10 * tol * (float(left.norm()) or 1.0), "<u, A v> must equal <Aᵀ u, v>"
    if dense is not None:
        found = op.dense()
        gap = float((found - dense).norm()) / (float(dense.norm()) or 1.0)
        assert gap <= tol, f"the operator must equal its dense matrix to {tol:g}; it is off by {gap:.1e}"
