"""Sums, multiples, transposes and products of operators."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import refuse
from .base import LinearOperator
from .layout import Layout


class Sum(LinearOperator):
    """Σ_i c_i A_i."""

    def __init__(self, parts: tuple[LinearOperator, ...], scales: tuple[float, ...]) -> None:
        shapes = {part.shape for part in parts}
        if len(shapes) != 1:
            refuse(
                "operators in a sum must have one shape",
                f"{sorted(shapes)}",
                "Select the same parameters in each.",
            )
        self.parts, self.scales = parts, scales
        self.symmetric = all(part.symmetric for part in parts)

    @property
    def shape(self) -> tuple[int, int]:
        return self.parts[0].shape

    @property
    def dtype(self) -> torch.dtype:
        return self.parts[0].dtype

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    @property
    def layout(self) -> Layout:
        return self.parts[0].layout

    @property
    def preferred_block(self) -> int:
        return max(part.preferred_block for part in self.parts)

    @property
    def fingerprint(self) -> str:
        parts = [f"{scale!r} * {part.fingerprint}" for scale, part in zip(self.scales, self.parts, strict=True)]
        return f"Sum({', '.join(parts)})"

    @property
    def verified(self) -> str:
        return "; ".join(dict.fromkeys(part.verified for part in self.parts))

    def _apply(self, block: Tensor) -> Tensor:
        total = self.parts[0].apply(block) * self.scales[0]
        for part, scale in zip(self.parts[1:], self.scales[1:], strict=True):
            total = total.add_(part.apply(block), alpha=scale)
        return total

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        total = self.parts[0]._apply_adjoint(block) * self.scales[0]
        for part, scale in zip(self.parts[1:], self.scales[1:], strict=True):
            total = total.add_(part._apply_adjoint(block), alpha=scale)
        return total


class Transposed(LinearOperator):
    """Aᵀ."""

    symmetric = False

    def __init__(self, inner: LinearOperator) -> None:
        self.inner = inner

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape[1], self.inner.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.inner.dtype

    @property
    def device(self) -> torch.device:
        return self.inner.device

    @property
    def fingerprint(self) -> str:
        return f"Transposed({self.inner.fingerprint})"

    @property
    def verified(self) -> str:
        return self.inner.verified

    def _apply(self, block: Tensor) -> Tensor:
        return self.inner._apply_adjoint(block)

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        return self.inner._apply(block)

    @property
    def T(self) -> LinearOperator:
        return self.inner
