"""The figures of an analysis, for papers: the same pictures as in the report."""

from __future__ import annotations

from typing import Any

from .block_map import block_map_figure
from .course import course_figure
from .layers import decoupling_figure
from .spectrum import counts_figure, spectrum_figure
from .views import spectra


def analysis_figures(analysis: Any) -> dict[str, Any]:
    """Name -> matplotlib Figure for everything the analysis holds."""
    guess = analysis.prediction
    theory = None if guess is None else guess.measure()
    found = {
        "spectrum": spectrum_figure(spectra(analysis), analysis.largest.values, theory),
        "counts": counts_figure(spectra(analysis), analysis.size, analysis.largest.values),
    }
    for blocks in analysis.blocks:
        found[f"blocks-{blocks.partition}"] = block_map_figure(blocks)
    if analysis.kronecker:
        found["decoupling"] = decoupling_figure(analysis.kronecker[:4])
    if analysis.history is not None:
        found["course"] = course_figure(analysis.history)
    return found
