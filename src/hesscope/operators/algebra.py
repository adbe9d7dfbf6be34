"""Sums, multiples, transposes and products of operators."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..errors import refuse
from .base import LinearOperator
from .derived import Derived
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
        kinds = {(str(part.dtype), str(part.device)) for part in parts}
        if len(kinds) != 1:
            refuse(
                "operators in a sum must have one dtype and device",
                f"{sorted(' on '.join(kind) for kind in kinds)}",
                "Convert one: problem.cast(torch.float64), or matrix.to(H.dtype).",
            )
        self.parts, self.scales = parts, scales
        self.symmetric = all(part.symmetric for part in parts) or _pairs_up(parts, scales)

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
    def row_layout(self) -> Layout:
        return self.parts[0].row_layout

    @property
    def preferred_block(self) -> int:
        return max(part.preferred_block for part in self.parts)

    @property
    def fingerprint(self) -> str:
        parts = [f"{scale!r} * {part.fingerprint}" for scale, part in zip(self.scales, self.parts, strict=True)]
        return f"Sum({', '.join(parts)})"

    @property
    def verified(self) -> str:
        return "; ".join(dict.fromkeys(part.verified for part in self.parts if part.verified))

    @property
    def product_error(self) -> float:
        return sum(abs(scale) * part.product_error for scale, part in zip(self.scales, self.parts, strict=True))

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


class Transposed(Derived):
    """Aᵀ."""

    symmetric = False

    def __init__(self, inner: LinearOperator) -> None:
        self.inner = inner

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape[1], self.inner.shape[0]

    @property
    def fingerprint(self) -> str:
        return f"Transposed({self.inner.fingerprint})"

    def _apply(self, block: Tensor) -> Tensor:
        return self.inner._apply_adjoint(block)

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        return self.inner._apply(block)

    @property
    def T(self) -> LinearOperator:
        return self.inner


class Product(LinearOperator):
    """A B, for one product with each; symmetric where its factors say so, as those of A Aᵀ, H H and H G H do."""

    def __init__(self, left: LinearOperator, right: LinearOperator) -> None:
        if left.shape[1] != right.shape[0]:
            refuse(
                "in a product A @ B, A must have as many columns as B has rows",
                f"{left.shape} and {right.shape}",
                "Select the same parameters in each, or transpose one.",
            )
        if (left.dtype, left.device) != (right.dtype, right.device):
            refuse(
                "operators in a product must have one dtype and device",
                f"{left.dtype} on {left.device} and {right.dtype} on {right.device}",
                "Convert one: problem.cast(torch.float64), or matrix.to(H.dtype).",
            )
        self.left, self.right = left, right
        self.symmetric = _factors(self) == _transposed(_factors(self))

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], self.right.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.right.dtype

    @property
    def device(self) -> torch.device:
        return self.right.device

    @property
    def layout(self) -> Layout:
        return self.right.layout

    @property
    def preferred_block(self) -> int:
        return max(self.left.preferred_block, self.right.preferred_block)

    @property
    def fingerprint(self) -> str:
        return f"Product({self.left.fingerprint}, {self.right.fingerprint})"

    @property
    def verified(self) -> str:
        return "; ".join(dict.fromkeys((self.left.verified, self.right.verified)))

    @property
    def product_error(self) -> float:
        return float("nan") if self.left.product_error or self.right.product_error else 0.0

    def _apply(self, block: Tensor) -> Tensor:
        return self.left.apply(self.right.apply(block))

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        return self.right._apply_adjoint(self.left._apply_adjoint(block))


_Factors = tuple[tuple[LinearOperator, bool], ...]  # A B Cᵀ as (A, no), (B, no), (C, yes)


def _factors(op: LinearOperator) -> _Factors:
    if isinstance(op, Transposed):
        return _transposed(_factors(op.inner))
    if isinstance(op, Product):
        return _factors(op.left) + _factors(op.right)
    return ((op, False),)


def _transposed(factors: _Factors) -> _Factors:
    return tuple((op, not flipped and not op.symmetric) for op, flipped in reversed(factors))


def _pairs_up(parts: tuple[LinearOperator, ...], scales: tuple[float, ...]) -> bool:
    """Whether every part's transpose is there as often, as in A + Aᵀ and H G + G H."""
    counted: dict[_Factors, float] = {}
    for part, scale in _terms(parts, scales):
        factors = _factors(part)
        counted[factors] = counted.get(factors, 0.0) + scale
    return all(counted.get(_transposed(factors)) == scale for factors, scale in counted.items())


def _terms(parts: tuple[LinearOperator, ...], scales: tuple[float, ...]) -> Iterator[tuple[LinearOperator, float]]:
    """The summands, those of sums among them one by one."""
    for part, scale in zip(parts, scales, strict=True):
        if isinstance(part, Sum):
            yield from _terms(part.parts, tuple(scale * one for one in part.scales))
        else:
            yield part, scale


class Identity(LinearOperator):
    """I of the shape, type and layout of another operator: what a number means in A + 0.1."""

    def __init__(self, like: LinearOperator) -> None:
        if like.shape[0] != like.shape[1]:
            refuse("a number can be added to a square operator", f"shape {like.shape}", "Use A.T @ A + 0.1.")
        self._shape, self._dtype, self._device, self._layout = like.shape, like.dtype, like.device, like.layout

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def verified(self) -> str:
        return ""

    def _apply(self, block: Tensor) -> Tensor:
        return block


def summand(given: object, like: LinearOperator) -> LinearOperator:
    """What stands for `given` in a sum with `like`: an operator itself, the identity for a number."""
    return given if isinstance(given, LinearOperator) else Identity(like)
