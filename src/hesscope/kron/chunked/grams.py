"""Sums of xᵀx: computed above the diagonal in the data's own type, kept in float64."""

from __future__ import annotations

import torch
from torch import Tensor

_STRIP = 128


class GramSum:
    """Σ xᵀ x over matrices x `(rows, n)`; strips above the diagonal save up to half of the operations."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._total = torch.zeros(n, n, dtype=torch.float64, device="cpu")
        self._recent: Tensor | None = None

    def add(self, x: Tensor, scale: float = 1.0) -> None:
        """Add scale · xᵀ x."""
        if self._recent is None:
            self._recent = torch.zeros(self.n, self.n, dtype=x.dtype, device=x.device)
        for start in range(0, self.n, _STRIP):
            stop = min(start + _STRIP, self.n)
            self._recent[start:stop, start:].addmm_(x[:, start:stop].T, x[:, start:], alpha=scale)

    def settle(self) -> None:
        """Move what was added so far into float64; called once per chunk, so that few numbers meet in float32."""
        if self._recent is not None:
            self._total += self._recent.double().cpu()
            self._recent = None

    def restore(self, total: Tensor) -> None:
        """Go on from the upper triangle that `upper` gave."""
        self._total = total

    def upper(self) -> Tensor:
        """What was added so far, above the diagonal and on it."""
        self.settle()
        return self._total

    def value(self) -> Tensor:
        """The symmetric sum."""
        self.settle()
        upper = self._total.triu(1)
        return upper + upper.T + torch.diag(self._total.diagonal())
