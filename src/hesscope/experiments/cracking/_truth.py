"""Dense Hessians by double backward, to stand beside the closed forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ...measure import Array


def double_backward_hessian(loss: Callable[..., Tensor], parameters: Sequence[Array | Tensor]) -> Array:
    """∇²ℓ over the parameters flattened in the order given: (n, n)."""
    leaves = [torch.as_tensor(p, dtype=torch.float64).clone().requires_grad_() for p in parameters]
    first = torch.autograd.grad(loss(*leaves), leaves, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in first])
    rows = torch.autograd.grad(flat, leaves, torch.eye(len(flat), dtype=torch.float64), is_grads_batched=True)
    return np.asarray(torch.cat([r.reshape(len(flat), -1) for r in rows], dim=1).numpy())


def largest_gap(eigenvalues: Array, hessian: Array) -> float:
    """max |λ − λ_dense| / |H|."""
    dense = np.linalg.eigvalsh(hessian)
    return float(np.abs(np.sort(eigenvalues) - dense).max() / np.abs(dense).max())
