"""Figures as files for papers; light to import, so that commands can name the formats."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from ..files import make_folder, replace_own

FORMATS = ("png", "svg", "pdf")
# Dates would make the same figure differ from run to run; the name tells our figures from those of others.
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": "hesscope"},
    "svg": {"Title": "hesscope", "Date": None},
    "pdf": {"Creator": "hesscope", "CreationDate": None},
}


def save_figures(
    figures: dict[str, Any], folder: str | os.PathLike[str], formats: tuple[str, ...] = FORMATS
) -> list[Path]:
    """Write each figure as `folder/name.format`."""
    place = Path(folder)
    make_folder(place)
    written = []
    for name, figure in figures.items():
        for suffix in formats:
            path = place / f"{name}.{suffix}"
            replace_own(path, partial(figure.savefig, format=suffix, metadata=_METADATA[suffix]))
            written.append(path)
    return written
