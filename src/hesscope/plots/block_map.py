"""The block map of an analysis: ‖H_ij‖_F in colour, layers outlined."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from .style import SEQUENTIAL, new_figure


def layer_spans(layers: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """(layer, first block, one past the last) for each run of blocks of one layer."""
    spans, start = [], 0
    for layer, run in groupby(layers):
        count = sum(1 for _ in run)
        spans.append((layer, start, start + count))
        start += count
    return spans


def log_norms(norms: Any) -> Any:
    """log10 of the norms relative to the largest, cut five decades down."""
    largest = float(np.max(norms)) or 1.0
    return np.log10(np.maximum(np.asarray(norms) / largest, 1e-5))


def block_map_figure(blocks: Any) -> Any:
    """Norms on a logarithmic colour scale over five decades, one cell per pair of blocks."""
    figure, axis = new_figure(width=6.4, height=5.4)
    axis.grid(False)
    image = axis.imshow(log_norms(blocks.norms), cmap=SEQUENTIAL, vmin=-5, vmax=0, interpolation="nearest")
    bar = figure.colorbar(image, ax=axis, shrink=0.85)
    bar.set_label("log₁₀ of ‖H_ij‖ relative to the largest block")
    spans = layer_spans(blocks.layers)
    for _, start, _ in spans[1:]:
        axis.axhline(start - 0.5, color="white", linewidth=0.8)
        axis.axvline(start - 0.5, color="white", linewidth=0.8)
    middles = [(start + stop - 1) / 2 for _, start, stop in spans]
    names = [name for name, _, _ in spans]
    axis.set_xticks(middles, names, rotation=45 if len(names) > 5 else 0)
    axis.set_yticks(middles, names)
    axis.set_xlabel(f"block (by {blocks.partition})")
    axis.set_ylabel(f"block (by {blocks.partition})")
    return figure
