"""Vectors sharded over the processes of torch.distributed, so that no process holds a whole Krylov basis."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from ..operators import Layout


@dataclass(frozen=True)
class ShardedLayout(Layout):
    """Equal contiguous parts (the last ones shorter) of `size` entries over `world` processes."""

    rank: int = 0
    world: int = 1

    @staticmethod
    def here(size: int) -> ShardedLayout:
        """The layout of this process in the default group."""
        return ShardedLayout(size, dist.get_rank(), dist.get_world_size())

    @property
    def _part(self) -> int:
        return -(-self.size // self.world)

    @property
    def local(self) -> slice:
        start = min(self.size, self.rank * self._part)
        return slice(start, min(self.size, start + self._part))

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        return self.sum(super().inner(a, b))

    def sum(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    def gather(self, a: Tensor) -> Tensor:
        # All parts are padded to one length, as all_gather needs; only the last ones are short.
        padded = torch.zeros(self._part, a.shape[1], dtype=a.dtype, device=a.device)
        padded[: a.shape[0]] = a
        parts = [torch.empty_like(padded) for _ in range(self.world)]
        dist.all_gather(parts, padded)
        return torch.cat(parts)[: self.size]
