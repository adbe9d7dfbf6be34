"""Room for vectors that memory does not hold: a file without a name, which the system reads and writes as it can."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from ...measure import Array
from ...operators import LinearOperator

_DISK = 2  # at most this part of what is free on a disk
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")  # file systems that are no disks
_PIECE = 1 << 20  # columns at a time
_MOUNTS = Path("/proc/self/mounts")


def room_on_disk(op: LinearOperator, count: int, folder: str | os.PathLike[str] | None) -> Tensor | None:
    """`(count, n)` numbers in a file of this folder, or of the one for temporary files; None where there is no room.

    The file has no name, so that nothing is left behind whatever happens. Processes that share vectors all have room,
    or none.
    """
    where = Path(tempfile.gettempdir() if folder is None else folder)
    width = op.layout.local_size
    found = None
    if op.device.type == "cpu" and width and _is_disk(where):
        found = _mapped(where, count, width, op.dtype)
    without = op.layout.sum(torch.tensor([float(found is None)], dtype=torch.float64, device=op.device))
    return None if float(without) else found


def _mapped(where: Path, count: int, width: int, dtype: torch.dtype) -> Tensor | None:
    size = count * width * dtype.itemsize
    try:
        where.mkdir(parents=True, exist_ok=True)
        if size > shutil.disk_usage(where).free // _DISK:
            return None
        handle, name = tempfile.mkstemp(dir=where, prefix=".vectors-")
        try:
            # A disk that is full must say so now: later, a write to what is mapped would end the process.
            os.posix_fallocate(handle, 0, size)
            return torch.from_file(name, shared=True, size=count * width, dtype=dtype).view(count, width)
        finally:
            os.close(handle)
            os.unlink(name)
    except (OSError, RuntimeError, AttributeError):
        return None


def _is_disk(where: Path) -> bool:
    """Whether what is written there goes to a disk and not to memory, as far as the system tells."""
    try:
        mounts = [line.split()[1:3] for line in _MOUNTS.read_text().splitlines()]
    except OSError:
        return False
    path = where.resolve()
    above = [(len(place), kind) for place, kind in mounts if path == Path(place) or Path(place) in path.parents]
    return bool(above) and max(above)[1] not in _IN_MEMORY


def mix_rows(rows: Tensor, weights: Array) -> None:
    """The first rows become `weights @ rows`, in their place, a few columns at a time: vectors are never there twice."""
    mix = torch.as_tensor(weights, dtype=rows.dtype, device=rows.device)
    for start in range(0, rows.shape[1], _PIECE):
        piece = rows[:, start : start + _PIECE]
        piece[: len(mix)] = mix @ piece
