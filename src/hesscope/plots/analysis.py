"""The pictures of an analysis, and the same for papers."""

from __future__ import annotations

from typing import Any

from ..results.analysis import Analysis
from .landscape import landscape_picture
from .layers import blocks_picture, history_picture, kronecker_picture, layer_table_picture
from .picture import Picture
from .spectrum import spectrum_picture


def pictures_of(a: Analysis) -> list[Picture]:
    """A picture for everything the analysis holds."""
    found = [spectrum_picture(a)]
    if a.layer_table is not None:
        found.append(layer_table_picture(a.layer_table))
    if a.blocks:
        found.append(blocks_picture(a.blocks))
    if a.kronecker:
        found.append(kronecker_picture(a.kronecker))
    if a.landscape is not None:
        found.append(landscape_picture(a.landscape))
    if a.history is not None:
        found.append(history_picture(a.history))
    return found


def analysis_figures(a: Analysis) -> dict[str, Any]:
    """File name -> matplotlib Figure for everything the analysis holds."""
    from .static import figures_of

    return {file: figure for picture in pictures_of(a) for file, figure in figures_of(picture).items()}
