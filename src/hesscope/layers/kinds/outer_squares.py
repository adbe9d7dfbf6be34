"""Squares of sums of outer products, per example or per entry, in pieces of bounded memory."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK_BYTES = 64_000_000


def summed_outer_squares(left: Tensor, right: Tensor, entries: bool) -> Tensor:
    """Squares of Σ_t left[n, :, t] right[n, t, :]: per example, or per entry summed over examples."""
    n, out, length = left.shape
    if not entries and length * length < out * right.shape[-1]:
        gram = torch.bmm(left.transpose(1, 2), left) * torch.bmm(right, right.transpose(1, 2))
        return gram.flatten(1).sum(-1)
    step = max(1, CHUNK_BYTES // (out * right.shape[-1] * left.element_size()))
    pieces = []
    for start in range(0, n, step):
        squared = torch.bmm(left[start : start + step], right[start : start + step]).square_()
        pieces.append(squared.sum(0, keepdim=True) if entries else squared.flatten(1).sum(-1))
    return torch.cat(pieces).sum(0) if entries else torch.cat(pieces)
