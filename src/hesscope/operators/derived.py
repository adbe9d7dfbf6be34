"""Operators made from another one: its type, its place, and what was proven of it."""

from __future__ import annotations

import torch

from .base import LinearOperator
from .layout import Layout


class Derived(LinearOperator):
    """What is computed by products with `inner`; its shape and fingerprint are its own."""

    inner: LinearOperator

    @property
    def dtype(self) -> torch.dtype:
        return self.inner.dtype

    @property
    def device(self) -> torch.device:
        return self.inner.device

    @property
    def verified(self) -> str:
        return self.inner.verified

    @property
    def product_error(self) -> float:
        return self.inner.product_error


class OnSameVectors(Derived):
    """Takes the vectors that `inner` takes, laid out and in blocks as it likes them."""

    @property
    def layout(self) -> Layout:
        return self.inner.layout

    @property
    def preferred_block(self) -> int:
        return self.inner.preferred_block
