"""Where a result comes from: versions, machine, data; never a user's name or folder."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .._version import __version__


def provenance_of(source: str, dtype: str, device: str, data: str) -> dict[str, Any]:
    """What a reader needs to repeat the run."""
    packages = {name: _version(name) for name in ("torch", "numpy", "scipy")}
    return {
        "source": source or "Python",
        "data": data,
        "dtype": dtype.removeprefix("torch."),
        "device": device,
        "hesscope": __version__,
        **packages,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
