"""Random numbers that belong to rows of the data, however the rows are joined to batches or cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from ...rng import Rng

_AT_ONCE = 4  # numbers of one step of the counter


@dataclass(frozen=True)
class RowDraws:
    """Independent draws for the rows from `first` on: a generator that counts is set to the place of the first row.

    >>> whole, part = RowDraws(Rng(0), 0), RowDraws(Rng(0), 2)
    >>> torch.equal(whole.uniform(5, 3)[2:], part.uniform(3, 3))
    True
    """

    rng: Rng
    first: int

    def uniform(self, rows: int, columns: int) -> Tensor:
        """Numbers in [0, 1) of shape `(rows, columns)`, float64, on the CPU so that every device sees the same."""
        steps = -(-columns // _AT_ONCE)
        # Rows of another width are another stream, or places of the two would overlap.
        counter = np.random.Philox(key=self.rng.child("rows", columns).key).advance(self.first * steps)
        drawn = np.random.Generator(counter).random((rows, steps * _AT_ONCE))
        return torch.from_numpy(np.ascontiguousarray(drawn[:, :columns]))

    def normal(self, rows: int, columns: int) -> Tensor:
        """Standard normal numbers of the same shape: quantiles of uniform ones, so that each takes one draw."""
        uniform = self.uniform(rows, columns).numpy()
        return torch.from_numpy(ndtri(np.maximum(uniform, 2.0**-54)))
