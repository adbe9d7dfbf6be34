"""Files without a name, for what memory does not hold: nothing is left behind, whatever happens."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_SHARE = 2  # at most this part of what is free on a disk
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")  # file systems that are no disks
_MOUNTS = Path("/proc/self/mounts")


def scratch_folder(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """This folder, or the one for temporary files; None where it cannot be, or what is written there goes to memory."""
    where = Path(tempfile.gettempdir() if folder is None else folder)
    if not _is_disk(where):
        return None
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return where


def scratch_bytes(where: Path) -> int:
    """How much of a disk may be taken."""
    try:
        return shutil.disk_usage(where).free // _SHARE
    except OSError:
        return 0


def scratch_file(where: Path) -> int | None:
    """A descriptor of a new file in this folder that has no name; None where there can be none."""
    try:
        handle, name = tempfile.mkstemp(dir=where, prefix=".hesscope-")
        os.unlink(name)
        return handle
    except OSError:
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
