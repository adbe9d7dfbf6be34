"""What is free: one answer for graphs, Krylov vectors and dense matrices."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import refuse

if TYPE_CHECKING:
    import torch

_UNKNOWN = 4 * 10**9
_CGROUP = Path("/sys/fs/cgroup")
_STATUS = Path("/proc/self/status")
LIMIT = "HESSCOPE_MEMORY"  # of this process, in the environment: what it may hold in all
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def bytes_in_text(text: str) -> int | None:
    """Of "8GB", "500 MB" or a plain number; None for anything else."""
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([kmgt]?)i?b?\s*", text.lower())
    return int(float(found[1]) * _UNITS[found[2]]) if found else None


def free_bytes(device: torch.device | str = "cpu") -> int:
    """What can still be had on a device: of the machine, of the container that the process runs in, and of what
    $HESSCOPE_MEMORY allows it."""
    if str(device).startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return int(min(_free_on_machine(), _free_in_container(), _free_for_process()))


def _free_on_machine() -> int:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return _UNKNOWN


def _free_in_container() -> float:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        # Pages of files that were read are counted as used, and given up when memory is short.
        cached = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return float("inf") if limit == "max" else max(0, int(limit) - used + int(cached.get("inactive_file", 0)))
    except (OSError, ValueError):
        return float("inf")


def _free_for_process() -> float:
    given = os.environ.get(LIMIT)
    if not given:
        return float("inf")
    limit = bytes_in_text(given)
    if limit is None:
        refuse(f"${LIMIT} must be bytes or a text like '8GB'", f"{given!r}", f"Try {LIMIT}=6GB, or leave it out.")
    try:
        # Pages of files are not counted: the system takes them back when memory is short.
        own = re.search(r"RssAnon:\s+(\d+) kB", _STATUS.read_text())
    except OSError:
        own = None
    return max(0, limit - (int(own[1]) * 1024 if own else 0))


def give_back() -> None:
    """Return to the system what was freed: glibc keeps blocks of less than 32 MB for later, and of a passing need for many of
    them they stay for good."""
    with suppress(OSError, AttributeError):  # of another library, which does as it does
        ctypes.CDLL(None).malloc_trim(0)
