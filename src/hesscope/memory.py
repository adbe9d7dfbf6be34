"""What is free: one answer for graphs, Krylov vectors and dense matrices."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_UNKNOWN = 4 * 10**9
_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device | str = "cpu") -> int:
    """What can still be had on a device: of the machine, and of the container that the process runs in."""
    if str(device).startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return int(min(_free_on_machine(), _free_in_container()))


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
