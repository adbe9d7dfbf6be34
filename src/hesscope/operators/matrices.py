"""Operators that are known in full: dense, low rank, Kronecker, block-diagonal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import refuse
from ..measure import Array
from .base import LinearOperator
from .content import digest
from .given import as_operator
from .tensors import tensor_of


def as_tensor(given: Tensor | Array, what: str) -> Tensor:
    """A tensor of floating-point numbers from a tensor or an array, as results from files hold them."""
    if not isinstance(given, Tensor | np.ndarray):
        refuse(f"{what} must be a tensor or an array", f"{type(given).__name__}", "Pass a torch.Tensor.")
    tensor = tensor_of(given)
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.double()


_ROUNDING = 64  # units in the last place of the largest entry


class _OfTensor(LinearOperator):
    """Shared by operators whose dtype and device are those of one tensor."""

    def __init__(self, like: Tensor, shape: tuple[int, int]) -> None:
        self._like, self._shape = like, shape

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    @property
    def dtype(self) -> torch.dtype:
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        return self._like.device


class Dense(_OfTensor):
    """A matrix that is held in memory."""

    def __init__(self, matrix: Tensor | Array, symmetric: bool | None = None) -> None:
        matrix = as_tensor(matrix, "a matrix")
        if matrix.ndim != 2:
            refuse("a dense operator needs a matrix", f"shape {tuple(matrix.shape)}", "Pass a 2-d tensor.")
        super().__init__(matrix, (matrix.shape[0], matrix.shape[1]))
        self.matrix = matrix
        self.symmetric = _is_symmetric(matrix) if symmetric is None else symmetric

    def _apply(self, block: Tensor) -> Tensor:
        return self.matrix @ block

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        return self.matrix.T @ block

    @property
    def fingerprint(self) -> str:
        return f"Dense({digest(self.matrix)})"

    @property
    def preferred_block(self) -> int:
        return 32

    def dense(self, chunk: int = 256) -> Tensor:
        return self.matrix


def _is_symmetric(matrix: Tensor) -> bool:
    """Up to rounding: columns of a Hessian that were computed one by one."""
    if matrix.shape[0] != matrix.shape[1]:
        return False
    if not matrix.numel() or torch.equal(matrix, matrix.T):
        return True
    gap, size = (float(m.abs().max()) for m in (matrix - matrix.T, matrix))
    return gap <= _ROUNDING * torch.finfo(matrix.dtype).eps * size


class LowRank(_OfTensor):
    """U diag(values) Uᵀ, for example from eigenpairs."""

    def __init__(self, vectors: Tensor | Array, values: Tensor | Array) -> None:
        vectors, values = as_tensor(vectors, "vectors"), as_tensor(values, "values")
        if vectors.ndim != 2 or values.shape != vectors.shape[1:]:
            refuse(
                "a low-rank operator needs vectors (n, k) and values (k,)",
                f"{tuple(vectors.shape)} and {tuple(values.shape)}",
                "Pass .vectors and .values of eigenpairs.",
            )
        super().__init__(vectors, (vectors.shape[0], vectors.shape[0]))
        self.vectors, self.values = vectors, values

    @property
    def fingerprint(self) -> str:
        return f"LowRank({digest(self.vectors, self.values)})"

    def _apply(self, block: Tensor) -> Tensor:
        return self.vectors @ (self.values.to(block.dtype)[:, None] * (self.vectors.T @ block))


class Kronecker(_OfTensor):
    """A ⊗ B, acting on vec of a row-major `(rows of A, rows of B)` matrix X as A X Bᵀ."""

    def __init__(self, left: Tensor | Array, right: Tensor | Array) -> None:
        left, right = as_tensor(left, "the left factor"), as_tensor(right, "the right factor")
        if left.ndim != 2 or right.ndim != 2 or left.dtype != right.dtype:
            refuse(
                "a Kronecker product needs two matrices of one dtype",
                f"{left.dtype} {tuple(left.shape)} and {right.dtype} {tuple(right.shape)}",
                "Convert one with .to(dtype).",
            )
        super().__init__(left, (left.shape[0] * right.shape[0], left.shape[1] * right.shape[1]))
        self.left, self.right = left, right
        self.symmetric = bool(
            left.shape[0] == left.shape[1]
            and right.shape[0] == right.shape[1]
            and torch.allclose(left, left.T)
            and torch.allclose(right, right.T)
        )

    @property
    def fingerprint(self) -> str:
        return f"Kronecker({digest(self.left, self.right)})"

    def _apply(self, block: Tensor) -> Tensor:
        return _kron_apply(self.left, self.right, block)

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        return _kron_apply(self.left.T, self.right.T, block)


def _kron_apply(left: Tensor, right: Tensor, block: Tensor) -> Tensor:
    k = block.shape[1]
    x = block.T.reshape(k, left.shape[1], right.shape[1])
    return (left @ x @ right.T).reshape(k, -1).T


class BlockDiagonal(LinearOperator):
    """diag(A_1, ..., A_b)."""

    def __init__(self, blocks: Sequence[LinearOperator]) -> None:
        if not blocks:
            refuse("a block-diagonal operator needs blocks", "none", "Pass at least one operator.")
        self.blocks = tuple(as_operator(block) for block in blocks)
        self.symmetric = all(block.symmetric for block in self.blocks)

    @property
    def shape(self) -> tuple[int, int]:
        return sum(b.shape[0] for b in self.blocks), sum(b.shape[1] for b in self.blocks)

    @property
    def dtype(self) -> torch.dtype:
        return self.blocks[0].dtype

    @property
    def device(self) -> torch.device:
        return self.blocks[0].device

    @property
    def fingerprint(self) -> str:
        return f"BlockDiagonal({', '.join(block.fingerprint for block in self.blocks)})"

    @property
    def verified(self) -> str:
        return "; ".join(dict.fromkeys(block.verified for block in self.blocks))

    @property
    def product_error(self) -> float:
        return max(block.product_error for block in self.blocks)

    def _apply(self, block: Tensor) -> Tensor:
        pieces = torch.split(block, [b.shape[1] for b in self.blocks])
        return torch.cat([b.apply(piece) for b, piece in zip(self.blocks, pieces, strict=True)])

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        pieces = torch.split(block, [b.shape[0] for b in self.blocks])
        return torch.cat([b._apply_adjoint(piece) for b, piece in zip(self.blocks, pieces, strict=True)])
