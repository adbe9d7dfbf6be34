"""Pictures of block structure: |H| itself, norms of its blocks, ratios by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .picture import layer_spans, log_sizes
from .style import CYCLE, SEQUENTIAL, new_figure


def draw_heat(
    axis: Any, image: Any, bounds: Any = (), title: str = "", names: Sequence[str] = (), top: float | None = None
) -> Any:
    """|H| on a square-root colour scale up to `top` (its 99.9 % quantile), tensors outlined and, where there is room, named."""
    picture, shrunk = _no_finer_than(axis, np.sqrt(np.asarray(image)))
    bounds = [start / shrunk for start in bounds]
    top = top or float(np.quantile(picture, 0.999)) or 1.0
    axis.grid(False)
    drawn = axis.imshow(picture, cmap=SEQUENTIAL, vmin=0, vmax=top, interpolation="nearest")
    for start in bounds[1:]:
        axis.axhline(start - 0.5, color="white", linewidth=0.6, linestyle=":")
        axis.axvline(start - 0.5, color="white", linewidth=0.6, linestyle=":")
    edges = [*bounds, len(picture)]
    middles = [(a + b) / 2 for a, b in pairwise(edges)] if names else []
    axis.set_xticks(middles, names, fontsize=8)
    axis.set_yticks(middles, names, fontsize=8)
    axis.tick_params(length=0)
    axis.set_title(title, fontsize=10)
    return drawn


def _no_finer_than(axis: Any, picture: Any) -> tuple[Any, int]:
    """The picture by maxima of k x k pixels, and k, so that showing it drops no thin line."""
    k = max(1, int(np.ceil(len(picture) / (0.8 * axis.get_window_extent().width))))
    starts = np.arange(0, len(picture), k)
    return np.maximum.reduceat(np.maximum.reduceat(picture, starts, 0), starts, 1), k


def draw_norms(axis: Any, norms: Any, layers: tuple[str, ...], title: str = "", decades: float = 3.0) -> Any:
    """log₁₀ ‖H_IJ‖ relative to the largest block of its pair of layers, layers outlined and named."""
    norms = np.asarray(norms)
    spans = layer_spans(layers)
    shown = np.empty_like(norms)
    for _, a, b in spans:
        for _, c, d in spans:
            # Layers differ by orders of magnitude; each pair gets its own scale √(row's largest x column's largest).
            scale = np.sqrt(norms[a:b, a:b].max() * norms[c:d, c:d].max()) or 1.0
            shown[a:b, c:d] = norms[a:b, c:d] / scale
    axis.grid(False)
    drawn = axis.imshow(log_sizes(shown), cmap=SEQUENTIAL, vmin=-decades, vmax=0, interpolation="nearest")
    for _, start, _ in spans[1:]:
        axis.axhline(start - 0.5, color="white", linewidth=0.8)
        axis.axvline(start - 0.5, color="white", linewidth=0.8)
    middles = [(start + stop - 1) / 2 for _, start, stop in spans]
    names = [name for name, _, _ in spans]
    axis.set_xticks(middles, names, rotation=45 if len(names) > 5 else 0)
    axis.set_yticks(middles, names)
    axis.set_title(title, fontsize=10)
    return drawn


def heat_figure(heat: Any) -> Any:
    """A heat map with its tensors named."""
    figure, axis = new_figure(width=6.0, height=5.2)
    drawn = draw_heat(axis, heat.image, heat.bounds, "|H|", heat.names)
    axis.set_xticks([])
    axis.set_xlabel(f"parameter ({heat.size} in all, {heat.reduce} over each pixel)")
    axis.set_ylabel("parameter tensor")
    figure.colorbar(drawn, ax=axis, shrink=0.85).set_label("√|H|")
    return figure


def layer_bars(axis: Any, groups: Mapping[str, Mapping[str, float]]) -> None:
    """Bars of one number per layer, one colour per group, side by side."""
    layers = list(dict.fromkeys(layer for values in groups.values() for layer in values))
    width = 0.8 / max(1, len(groups))
    for k, ((name, values), ink) in enumerate(zip(groups.items(), CYCLE, strict=False)):
        places = np.arange(len(layers)) + (k - (len(groups) - 1) / 2) * width
        axis.bar(places, [values.get(layer, np.nan) for layer in layers], width, color=ink, label=name)
    axis.set_xticks(np.arange(len(layers)), layers, rotation=30 if len(layers) > 5 else 0)
    axis.set_ylabel("off-diagonal / diagonal")
    axis.legend(fontsize=8)
