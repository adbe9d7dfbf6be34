"""Pictures by matplotlib, for papers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from .picture import Axis, Band, Bars, Curve, Heat, Panel, Picture, Surface
from .style import INKS, SEQUENTIAL, VALUES, panel_grid

_LINES = {"solid": "-", "dashed": "--", "steps": "-", "dashed steps": "--", "none": ""}
_MARKERS = {"none": "", "dot": "o", "diamond": "D", "open diamond": "D"}


def figures_of(picture: Picture) -> dict[str, Any]:
    """File name -> matplotlib Figure: panels with the same file side by side."""
    groups = groupby(sorted(picture.panels, key=lambda panel: panel.file), key=lambda panel: panel.file)
    return {file: figure_of(tuple(panels)) for file, panels in groups}


def figure_of(panels: Sequence[Panel]) -> Any:
    """These panels in a row, more than three of them in two columns or three; a panel alone is larger."""
    heat = any(isinstance(mark, Heat | Surface) for panel in panels for mark in panel.marks)
    width, height = (6.4, 5.4) if heat else (8.0, 4.2) if len(panels) == 1 else (4.4, 3.6)
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    figure, axes = panel_grid(len(panels), columns, width=width, height=height)
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.1, h_pad=0.1)
    lines = [_draw(figure, axis, panel) for axis, panel in zip(axes, panels, strict=True)]
    # Names above the axes and turned ones below take height from the axes, unless the figure grows by it.
    names = max(
        (len(group) for panel in panels for mark in panel.marks if isinstance(mark, Bars) for group in mark.groups),
        default=0,
    )
    rows = -(-len(panels) // columns)
    figure.set_figheight(
        figure.get_figheight() + rows * (0.17 * max(0, max(lines) - 1) + (0.05 * names if len(panels) > 1 else 0))
    )
    return figure


def _draw(figure: Any, axis: Any, panel: Panel) -> int:
    """Draw one panel; how many lines of names stand above it."""
    bars = [mark for mark in panel.marks if isinstance(mark, Bars)]
    for mark in panel.marks:
        if isinstance(mark, Curve):
            _curve(axis, mark)
        elif isinstance(mark, Band):
            axis.fill_between(mark.x, mark.low, mark.high, color=INKS[mark.ink], alpha=0.18, linewidth=0)
        elif isinstance(mark, Heat):
            _heat(figure, axis, mark)
        elif isinstance(mark, Surface):
            _surface(figure, axis, mark)
    if bars:
        _bars(axis, bars)
    _axis(axis, "x", panel.x)
    _axis(axis, "y", panel.y)
    if any(isinstance(mark, Heat) for mark in panel.marks):
        axis.invert_yaxis()
    elif (named := sum(not isinstance(mark, Band) for mark in panel.marks)) > 1:
        # Above the axes, where no curve can run through it.
        beside = named > 6
        columns = 1 if beside else _columns(axis)
        place = (
            {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
            if beside
            else {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
        )
        axis.legend(frameon=False, fontsize=8, ncols=columns, **place)
        return 0 if beside else -(-named // columns)
    return 0


def _columns(axis: Any) -> int:
    """Two names beside each other where the panel is wide enough for them."""
    inches = axis.figure.get_figwidth() / axis.get_subplotspec().get_gridspec().ncols
    longest = max(len(name) for name in axis.get_legend_handles_labels()[1])
    return 2 if 2 * (0.5 + 0.065 * longest) <= inches - 0.8 else 1


def _curve(axis: Any, curve: Curve) -> None:
    ink = INKS[curve.ink]
    axis.plot(
        curve.x,
        curve.y,
        linestyle=_LINES[curve.line],
        drawstyle="steps-post" if "steps" in curve.line else "default",
        marker=_MARKERS[curve.marker],
        markersize=3.5 if curve.marker == "dot" else 4.5,
        markerfacecolor="none" if curve.marker == "open diamond" else ink,
        color=ink,
        linewidth=1.5,
        label=_plain(curve.name, 36),
    )


def _bars(axis: Any, bars: list[Bars]) -> None:
    groups, width = bars[0].groups, 0.8 / len(bars)
    for k, bar in enumerate(bars):
        places = np.arange(len(groups)) + (k - (len(bars) - 1) / 2) * width
        axis.bar(places, bar.heights, width, color=INKS[bar.ink], label=_plain(bar.name))
        if bar.errors is not None and np.nanmax(bar.errors, initial=0.0) > 0:
            axis.errorbar(places, bar.heights, bar.errors, fmt="none", ecolor=INKS["muted"], linewidth=1)
    crowded = sum(len(group) for group in groups) > 30
    turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    if len(groups) > 8:
        turned = {"rotation": 90, "fontsize": max(4, min(8, 160 // len(groups)))}
    axis.set_xticks(np.arange(len(groups)), [_plain(group, 24) for group in groups], **turned)
    axis.set_xlim(-0.7, len(groups) - 0.3)  # also where the outer ones have no bar


def _heat(figure: Any, axis: Any, heat: Heat) -> None:
    axis.grid(False)
    image = axis.imshow(
        heat.levels, cmap=SEQUENTIAL, vmin=-heat.decades, vmax=0, interpolation="nearest", origin="lower"
    )
    bar = figure.colorbar(image, ax=axis, shrink=0.85)
    bar.set_label("log₁₀ of ‖H_ij‖ relative to the largest block")
    for _, start, _ in heat.spans[1:]:
        axis.axhline(start - 0.5, color="white", linewidth=0.8)
        axis.axvline(start - 0.5, color="white", linewidth=0.8)


def _surface(figure: Any, axis: Any, surface: Surface) -> None:
    axis.grid(False)
    # Beyond both ends of the colours a surface keeps their colour, and has no contours.
    seen = np.clip(np.nan_to_num(surface.z, nan=surface.high, posinf=surface.high), surface.low, surface.high)
    ends = {"vmin": surface.low, "vmax": surface.high}
    image = axis.pcolormesh(surface.x, surface.y, seen, cmap=VALUES, shading="gouraud", **ends)
    heights = np.linspace(surface.low, surface.high, surface.levels + 2)[1:-1]
    axis.contour(surface.x, surface.y, seen, levels=heights, colors="white", linewidths=0.6)
    figure.colorbar(image, ax=axis, shrink=0.85).set_label(_plain(surface.name))


def _axis(axis: Any, which: str, described: Axis) -> None:
    if described.scale == "log":
        getattr(axis, f"set_{which}scale")("log")
    if described.ticks:
        places, labels = zip(*described.ticks, strict=True)
        crowded = which == "x" and sum(len(label) + 2 for label in labels) > 44
        turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        if len(labels) > 14:  # smaller, and upright where they would lean on each other
            turned = {"fontsize": 6, **({"rotation": 90} if which == "x" else {})}
        getattr(axis, f"set_{which}ticks")(places, [_plain(label) for label in labels], **turned)
    if described.counts:
        getattr(axis, f"{which}axis").get_major_locator().set_params(integer=True)
    if described.percent:
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")
    if described.label:
        getattr(axis, f"set_{which}label")(_plain(described.label))
    if which == "x":
        axis.set_xlim(left=described.low, right=described.high)
    else:
        axis.set_ylim(bottom=described.low, top=described.high)


def _plain(text: str, most: int = 48) -> str:
    """A name as it is, without mathematics between dollar signs; of a long one both ends."""
    short = text if len(text) <= most else f"{text[: most // 3]}…{text[-2 * most // 3 :]}"
    return short.replace("$", r"\$")
