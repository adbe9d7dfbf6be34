"""Operators with known spectra, hidden behind random orthogonal bases."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hesscope.operators import LinearOperator


class Rotated(LinearOperator):
    """Q diag(values) Qᵀ with Q = H₁ D H₂ of Householder reflections and signs: O(n) per product, nothing axis-aligned."""

    def __init__(self, values: np.ndarray, dtype: torch.dtype = torch.float64, seed: int = 0, block: int = 1) -> None:
        generator = torch.Generator().manual_seed(seed)
        n = len(values)
        self.values = torch.as_tensor(values, dtype=dtype)
        self.mirrors = [torch.randn(n, 1, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2)]
        self.mirrors = [m / torch.linalg.vector_norm(m) for m in self.mirrors]
        self.block = block

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.values), len(self.values)

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def preferred_block(self) -> int:
        return self.block

    def _apply(self, block: Tensor) -> Tensor:
        return self._basis(self.values[:, None] * self._basis(block, reverse=True))

    def _basis(self, block: Tensor, reverse: bool = False) -> Tensor:
        for m in reversed(self.mirrors) if reverse else self.mirrors:
            block = block - 2 * m @ (m.T @ block)
        return block

    def eigenvectors(self) -> Tensor:
        return self._basis(torch.eye(len(self.values), dtype=self.dtype))


def network_like(n: int, seed: int = 0) -> np.ndarray:
    """Nine outliers, a heavy tail and a bulk around zero, as the Hessian of a ten-class network has."""
    generator = np.random.default_rng(seed)
    outliers = np.array([10, 8, 6.5, 5, 4, 3.2, 2.5, 2.0, 1.6])
    tail = 1.2 / np.arange(1, n // 10 + 1)
    rest = n - outliers.size - tail.size
    return np.concatenate(
        [outliers, tail, 0.02 * generator.standard_normal(rest) * np.abs(generator.standard_normal(rest))]
    )


def dense_of(values: np.ndarray, seed: int = 0) -> Tensor:
    """A symmetric matrix with these eigenvalues and a Haar-random basis."""
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    matrix = torch.as_tensor((q * values) @ q.T)
    return (matrix + matrix.T) / 2
