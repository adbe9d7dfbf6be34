"""Where the entries of a vector live: all here, or sharded over the processes of a group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..rng import Rng
from .long_sums import long_inner, long_squares

Draw = Literal["normal", "rademacher"]
_ROWS = 4096
_PIECE = 32768  # numbers that one thread squares: more of them wait for each other on a busy machine
_DRAWN = 1 << 20  # numbers drawn at a time, a multiple of sixteen


@dataclass(frozen=True)
class Layout:
    """All `size` entries in this process. Algorithms only ever touch vectors through a layout.

    Subclasses that shard override `local`, `inner` and `gather`; an algorithm written against this class then runs
    sharded without knowing it.
    """

    size: int

    @property
    def local(self) -> slice:
        """The part of the vector that this process holds."""
        return slice(0, self.size)

    @property
    def local_size(self) -> int:
        place = self.local
        return int(place.stop - place.start)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """aᵀb in float64 over all processes, for local `(n, j)` and `(n, k)`: shape `(j, k)`."""
        if a.dtype == torch.float64 or a.shape[0] <= _ROWS:
            return a.double().T @ b.double()
        known = long_inner(a, b)
        if known is not None:
            return known
        # Float64 accumulation without a float64 copy of a whole basis, in pieces that stay in the cache.
        total = torch.zeros(a.shape[1], b.shape[1], dtype=torch.float64, device=a.device)
        for start in range(0, a.shape[0], _ROWS):
            total += a[start : start + _ROWS].double().T @ b[start : start + _ROWS].double()
        return total

    def norms(self, a: Tensor) -> Tensor:
        """The Euclidean norm of each column, in float64, without a float64 copy of long ones."""
        if a.shape[0] <= _PIECE:
            return self.sum(a.double().square().sum(0)).sqrt()
        known = long_squares(a)
        if known is not None:
            return self.sum(known).sqrt()
        pieces = (piece.T.double() for piece in torch.split(a, max(1, _PIECE // a.shape[1])))
        return self.sum(torch.stack([torch.linalg.vecdot(piece, piece) for piece in pieces]).sum(0)).sqrt()

    def sum(self, x: Tensor) -> Tensor:
        """The sum of a small tensor over all processes."""
        return x

    def gather(self, a: Tensor) -> Tensor:
        """The whole `(size, k)` from the local `(n, k)`."""
        return a

    def agreed(self, x: Tensor) -> Tensor:
        """What every process has computed alike, to the last bit, as the first one has it."""
        return x

    def draw(self, rng: Rng, k: int, kind: Draw, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Random columns, the same numbers for every layout and device: column j comes from `rng.child(j)`."""
        columns = torch.empty(k, self.local_size, dtype=dtype, device=device)
        for column, generator in zip(columns, (rng.child(j).torch() for j in range(k)), strict=True):
            for here, piece in _pieces_drawn(self.size, generator, kind):
                start, stop = max(here.start, self.local.start), min(here.stop, self.local.stop)
                if start < stop:
                    ours = slice(start - self.local.start, stop - self.local.start)
                    column[ours] = piece[start - here.start : stop - here.start].to(dtype)
        return columns.T


def _pieces_drawn(size: int, generator: torch.Generator, kind: Draw) -> Iterator[tuple[slice, Tensor]]:
    """The numbers that one draw of all of them gives, in float64, a few at a time: torch draws normal numbers in groups of
    sixteen, and the last sixteen of a draw that does not come out even once more."""
    start = 0
    while start < size:
        stop = start + _DRAWN if size - start >= _DRAWN + 16 else size
        if kind == "normal":
            piece = torch.randn(stop - start, generator=generator, dtype=torch.float64, device="cpu")
        else:
            piece = torch.randint(0, 2, (stop - start,), generator=generator, device="cpu").double().mul_(2).sub_(1)
        yield slice(start, stop), piece
        start = stop
