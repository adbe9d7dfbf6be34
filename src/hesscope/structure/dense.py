"""The whole Hessian, exactly, by the fastest exact route."""

from __future__ import annotations

import torch
from torch import Tensor

from ..curvature import Problem
from ..curvature.gradient_mode import differentiable
from ..errors import refuse
from ..memory import free_bytes
from ..operators import LinearOperator
from ..operators.given import MatrixName
from .exact.tiles import Stream
from .source import source_of


@differentiable()
def dense_hessian(matrix_of: Problem | LinearOperator, matrix: MatrixName | None = None) -> Tensor:
    """H as an `(n, n)` tensor in the order of `problem.space`, exactly.

    Linear layers that run once per example come from weighted Gram matrices, Σ_n M_n ⊗ x_n x_nᵀ, everything else from
    chunks of products; symmetric halves are computed once. Cost of two linear layers with n₁ and n₂ parameters:
    2 N n₁ n₂ flops for their block, against about 6 N (n₁ + n₂) per row by double backward. Memory: n² numbers, thrice that with biases.
    `matrix="gauss_newton"` or an operator gives another matrix instead. See docs/theory/blocks_measured.md.
    """
    source = source_of(matrix_of, matrix)
    stream = Stream(source)
    n, like = source.size, matrix_of
    # Biases and other tensors come in another order than they are streamed: sorting holds the matrix three times.
    size = n * n * torch.finfo(like.dtype).bits // 8 * (1 if stream.natural else 3)
    if size > free_bytes(like.device):
        refuse(
            "a dense Hessian must fit in memory",
            f"{n} parameters, {size / 1e9:.1f} GB",
            "Use block_norms or heat_map, which stream it, or problem.select(...).",
        )
    out = torch.zeros(n, n, dtype=like.dtype, device=like.device)
    for tile in stream:
        a, b = tile.start, tile.start + tile.values.shape[0]
        out[a:b, a : a + tile.values.shape[1]] = tile.values
        out[b : a + tile.values.shape[1], a:b] = tile.values[:, b - a :].T
    if stream.natural:
        return out
    back = torch.empty_like(stream.order)
    back[stream.order] = torch.arange(n, device="cpu")
    return out[back][:, back]
