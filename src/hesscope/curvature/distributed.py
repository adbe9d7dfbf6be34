"""Vectors sharded over the processes of torch.distributed, so that no process holds a whole Krylov basis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import HesscopeError
from ..operators import Layout


@contextmanager
def together() -> Iterator[None]:
    """Work that every process takes part in: where another one has ended, this one ends too, and says why."""
    try:
        yield
    except HesscopeError:
        raise
    except RuntimeError as error:
        raise HesscopeError(
            f"every process must take part; another one has ended or does not answer ({str(error).splitlines()[0]}). "
            "Look at what it printed, and start all of them again."
        ) from error


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
        with together():
            dist.all_reduce(x)
        return x

    def sum_of_wholes(self, rows: Tensor) -> Tensor:
        """The local part `(k, n)` of the sum over all processes of whole rows `(k, size)`, which are used up."""
        own = rows[:, :0]
        with together():
            for rank in range(self.world):
                part = rows[:, ShardedLayout(self.size, rank, self.world).local].contiguous()
                if part.numel():
                    dist.reduce(part, rank)
                if rank == self.rank:
                    own = part.clone()
        return own

    def gather(self, a: Tensor) -> Tensor:
        # All parts are padded to one length, as all_gather needs; only the last ones are short.
        padded = a.contiguous()
        if len(a) < self._part:
            padded = torch.zeros(self._part, *a.shape[1:], dtype=a.dtype, device=a.device)
            padded[: len(a)] = a
        whole = padded.new_empty(self.world * self._part, *a.shape[1:])
        with together():
            dist.all_gather(list(torch.split(whole, self._part)), padded)
        return whole[: self.size]

    def agreed(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        with together():
            dist.broadcast(x, 0)
        return x
