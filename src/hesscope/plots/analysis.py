"""The figures of an analysis, for papers: the same pictures as in the report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .block_map import block_map_figure
from .course import course_figure
from .layers import decoupling_figure
from .spectrum import counts_figure, spectrum_figure
from .views import spectra

FORMATS = ("png", "svg", "pdf")


def analysis_figures(analysis: Any) -> dict[str, Any]:
    """Name -> matplotlib Figure for everything the analysis holds."""
    guess = analysis.prediction
    theory = None if guess is None else guess.measure()
    found = {
        "spectrum": spectrum_figure(spectra(analysis), analysis.extremes.largest, theory),
        "counts": counts_figure(spectra(analysis), analysis.size, analysis.extremes.largest),
    }
    for blocks in analysis.blocks:
        found[f"blocks-{blocks.partition}"] = block_map_figure(blocks)
    if analysis.decoupling:
        found["decoupling"] = decoupling_figure(analysis.decoupling[:4])
    if analysis.course is not None:
        found["course"] = course_figure(analysis.course)
    return found


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
