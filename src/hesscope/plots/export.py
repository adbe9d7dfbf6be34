"""Figures as files for papers; light to import, so that commands can name the formats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

FORMATS = ("png", "svg", "pdf")


def save_figures(
    figures: dict[str, Any], folder: str | os.PathLike[str], formats: tuple[str, ...] = FORMATS
) -> list[Path]:
    """Write each figure as `folder/name.format`."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        for suffix in formats:
            path = place / f"{name}.{suffix}"
            # Dates would make the same figure differ from run to run.
            metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
            figure.savefig(path, metadata=metadata)
            written.append(path)
    return written
