"""Room for vectors that memory does not hold: a file without a name, which the system reads and writes as it can."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from ...measure import Array
from ...operators import LinearOperator
from ...scratch import scratch_bytes, scratch_file, scratch_folder

_PIECE = 1 << 20  # columns at a time


def room_on_disk(op: LinearOperator, count: int, folder: str | os.PathLike[str] | None) -> Tensor | None:
    """`(count, n)` numbers in a file of this folder, or of the one for temporary files; None where there is no room.

    The file has no name, so that nothing is left behind whatever happens. Processes that share vectors all have room,
    or none.
    """
    where, width = scratch_folder(folder), op.layout.local_size
    found = None
    if op.device.type == "cpu" and width and where is not None:
        found = _mapped(where, count, width, op.dtype)
    without = op.layout.sum(torch.tensor([float(found is None)], dtype=torch.float64, device=op.device))
    return None if float(without) else found


def _mapped(where: Path, count: int, width: int, dtype: torch.dtype) -> Tensor | None:
    size = count * width * dtype.itemsize
    handle = scratch_file(where) if size <= scratch_bytes(where) else None
    if handle is None:
        return None
    try:
        # A disk that is full must say so now: later, a write to what is mapped would end the process.
        os.posix_fallocate(handle, 0, size)
        return torch.from_file(f"/proc/self/fd/{handle}", shared=True, size=count * width, dtype=dtype).view(count, -1)
    except (OSError, RuntimeError, AttributeError):
        return None
    finally:
        os.close(handle)


def mix_rows(rows: Tensor, weights: Array) -> None:
    """The first rows become `weights @ rows`, in their place, a few columns at a time: vectors are never there twice."""
    mix = torch.as_tensor(weights, dtype=rows.dtype, device=rows.device)
    for start in range(0, rows.shape[1], _PIECE):
        piece = rows[:, start : start + _PIECE]
        piece[: len(mix)] = mix @ piece
