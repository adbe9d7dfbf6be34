"""Norms of weighted Gram matrices, ‖Xᵀ diag(s) Y‖_F² = sᵀ (XXᵀ ∘ YYᵀ) s, for many s at once."""

from __future__ import annotations

import torch
from torch import Tensor

_HELD = 64_000_000
_CHUNK = 1024


class PairNorms:
    """‖Σ_n s_n x_n y_nᵀ‖_F² for columns s of a `(N, k)` matrix, without forming a block.

    With an `overlap` P the form is sᵀ (XXᵀ ∘ YYᵀ ∘ PPᵀ) s: the same with Y_n = y_n ⊗ p_n, which is not formed either.
    Costs 2 N min(N, width) flops per column, with width the number of entries of a block (half of them for Y = X);
    the products of Gram matrices are held up to 64 million entries.
    """

    def __init__(self, x: Tensor, y: Tensor | None = None, overlap: Tensor | None = None) -> None:
        self.x, self.y, self.overlap = x, x if y is None else y, overlap
        self.symmetric = y is None or y is x
        width = x.shape[1] * self.y.shape[1] // (2 if self.symmetric else 1)
        self.by_entries = overlap is None and width < len(x) // 2
        self._held: list[Tensor] = []
        if not self.by_entries and len(x) ** 2 <= _HELD:
            self._held = [self._products(a) for a in range(0, len(x), _CHUNK)]

    def squares(self, s: Tensor) -> Tensor:
        """The squared norms of the k blocks, in float64."""
        return self._entries(s) if self.by_entries else self._quadratic(s)

    def _products(self, start: int) -> Tensor:
        """A chunk of rows of the form's matrix, from its diagonal on."""
        rows, columns = slice(start, start + _CHUNK), slice(start, None)
        out = self.x[rows] @ self.x[columns].T
        out = out.square_() if self.symmetric else out.mul_(self.y[rows] @ self.y[columns].T)
        return out if self.overlap is None else out.mul_(self.overlap[rows] @ self.overlap[columns].T)

    def _quadratic(self, s: Tensor) -> Tensor:
        """sᵀ G s from the upper triangle of G, in row chunks."""
        total = torch.zeros(s.shape[1], dtype=torch.float64, device=s.device)
        for k, start in enumerate(range(0, len(s), _CHUNK)):
            upper = self._held[k] if self._held else self._products(start)
            rows = upper.shape[0]
            image = upper[:, :rows] @ s[start : start + rows]
            image.addmm_(upper[:, rows:], s[start + rows :], alpha=2.0)
            total += (s[start : start + rows] * image).sum(0, dtype=torch.float64)
        return total.clamp_min_(0)

    def _entries(self, s: Tensor) -> Tensor:
        """Σ_ab (Σ_n s_n x_na y_nb)², counting b > a twice where Y = X."""
        total = torch.zeros(s.shape[1], dtype=torch.float64, device=s.device)
        for a in range(self.x.shape[1]):
            y = self.y[:, a:] if self.symmetric else self.y
            entries = (y * self.x[:, a : a + 1]).T @ s
            square = entries.square_().sum(0, dtype=torch.float64)
            total += 2 * square - entries[0] if self.symmetric else square
        return total


def softmax_squares(p: Tensor, x: Tensor) -> Tensor:
    """‖Σ_n p_ni p_nj x_n x_nᵀ‖_F² for all pairs i, j by contraction with the entries of x xᵀ: shape `(C, C)`, float64.

    The way of choice when x has few entries: d(d+1)/2 products of C x N by N x C, of which the upper triangle is done.
    """
    classes = p.shape[1]
    total = torch.zeros(classes, classes, dtype=torch.float64, device=p.device)
    step = max(64, -(-classes // 8))
    for a in range(x.shape[1]):
        for b in range(a, x.shape[1]):
            live, entry = nonzero_entries(x[:, a] * x[:, b])
            part = p[live]
            if bool((entry >= 0).all()):  # behind rectifiers one factor serves as both
                part = weighted = part * entry.sqrt()[:, None]
            else:
                weighted = part * entry[:, None]
            factor = 1.0 if a == b else 2.0
            for start in range(0, classes, step):
                stop = min(classes, start + step)
                entries = part[:, start:stop].T @ weighted[:, start:]
                total[start:stop, start:].add_(entries.square_(), alpha=factor)
    upper = total.triu()
    return upper + upper.triu(1).T


def nonzero_entries(weights: Tensor) -> tuple[Tensor | slice, Tensor]:
    """Where weights are not zero and their values there: behind rectifiers most examples drop out of a product."""
    live = torch.nonzero(weights).squeeze(1)
    return (slice(None), weights) if len(live) > 0.8 * len(weights) else (live, weights[live])
