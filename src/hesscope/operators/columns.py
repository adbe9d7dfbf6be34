"""How a block of vectors is stored: `(n, k)` with every vector, a column, in one piece of memory.

Algorithms make their blocks so, and engines read them so, without a transpose between the two; only a block from
outside is brought into this form, once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_STRIP = 4096  # entries of a vector that stay in the cache while a block is transposed


def by_columns(block: Tensor) -> Tensor:
    """The block itself where its columns are in one piece, else a copy in which they are."""
    if block.stride(0) == 1:
        return block
    rows = block.new_empty(block.shape[1], block.shape[0])
    for start in range(0, block.shape[0], _STRIP):
        rows[:, start : start + _STRIP] = block[start : start + _STRIP].T
    return rows.T


def joined_columns(blocks: Sequence[Tensor]) -> Tensor:
    """Blocks side by side."""
    return torch.cat([block.T for block in blocks]).T
