"""Inner products of vectors with millions of entries: short pieces in their own type, the sums of pieces in float64.

Even a library that adds one by one rounds a float32 sum of m terms as a random walk, and so do the pieces: of N entries, m / √(3 N)
roundings of float32, three parts in 10⁸ of a million. Converting every entry to float64 instead takes many times as long, which on
long vectors shows beside products.
"""

from __future__ import annotations

import torch
from torch import Tensor

LONG = 1 << 20  # entries from which on it pays
_PIECE = 1024
_TOGETHER = 1024  # pieces at a time, so that their sums stay small beside the vectors
_UNDERFLOW = 1e-28  # a sum above it has lost nothing below the smallest float32


def long_inner(a: Tensor, b: Tensor) -> Tensor | None:
    """aᵀb of `(n, j)` and `(n, k)` in float64; None where float32 cannot be trusted with it, or is not what it is."""
    if not (a.dtype == b.dtype == torch.float32 and len(a) >= LONG and _digits_are_kept()):
        return None
    total = torch.zeros(a.shape[1], b.shape[1], dtype=torch.float64, device=a.device)
    whole = len(a) - len(a) % _PIECE
    for start in range(0, whole, _PIECE * _TOGETHER):
        here = slice(start, min(start + _PIECE * _TOGETHER, whole))
        left, right = (x.T[:, here].view(x.shape[1], -1, _PIECE).transpose(0, 1) for x in (a, b))
        total += torch.bmm(left, right.mT).double().sum(0)
    total += a[whole:].double().T @ b[whole:].double()
    seen = total.abs()
    return total if bool(((seen > _UNDERFLOW) & (seen < torch.inf)).all()) else None


def long_squares(a: Tensor) -> Tensor | None:
    """The squared norm of each column of `(n, k)`, in the same way."""
    found = [long_inner(column, column) for column in torch.split(a, 1, 1)]
    known = [square for square in found if square is not None]
    return torch.cat(known).flatten() if known and len(known) == len(found) else None


def _digits_are_kept() -> bool:
    """Whether a product of float32 matrices has the digits of float32 (a user may have asked for fewer)."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch's newer switches were used, and it cannot say
        return False
