"""Pictures as Plotly specifications; colours stay names ("@measured"), which the page resolves per theme."""

from __future__ import annotations

import re
from html import escape
from typing import Any

import numpy as np

from ..measure import Array
from ..plots.picture import Axis, Band, Bars, Curve, Heat, Mark, Panel, Picture, Surface

_PLACES = {"x": "x", "y": "y", "value": "customdata", "text": "text"}
_DASHES = {"solid": "solid", "dashed": "dot", "steps": "solid", "dashed steps": "dot", "none": "solid"}
_SYMBOLS = {"none": "circle", "dot": "circle", "diamond": "diamond", "open diamond": "diamond-open"}
_POWERS = ("1", "10⁻¹", "10⁻²", "10⁻³", "10⁻⁴", "10⁻⁵")


def specification(picture: Picture) -> dict[str, Any]:
    """What page.js draws: a figure with one or more views."""
    views = [
        {
            "label": escape(panel.label),
            "data": [_trace(mark, panel.y.percent) for mark in panel.marks],
            "layout": _layout(panel),
        }
        for panel in picture.panels
    ]
    return {"name": picture.name, "views": views, "height": picture.height}


def numbers(values: Array) -> list[float | None]:
    """Five significant digits, None for what is not finite: enough for a picture, and small."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(values, float).ravel()]


def _trace(mark: Mark, percent: bool = False) -> dict[str, Any]:
    if isinstance(mark, Curve):
        return _curve(mark)
    if isinstance(mark, Band):
        return _band(mark)
    if isinstance(mark, Surface):
        return _surface(mark)
    return _bars(mark, percent) if isinstance(mark, Bars) else _heat(mark)


def _curve(curve: Curve) -> dict[str, Any]:
    name, ink = escape(curve.name), f"@{curve.ink}"
    shown = [kind for kind, there in (("lines", curve.line != "none"), ("markers", curve.marker != "none")) if there]
    line = {"color": ink, "width": 2, "dash": _DASHES[curve.line], "shape": "hv" if "steps" in curve.line else "linear"}
    size = 6 if curve.marker == "dot" else 8
    spec: dict[str, Any] = {
        "type": "scatter",
        "mode": "+".join(shown),
        "name": name,
        "x": numbers(curve.x),
        "y": numbers(curve.y),
        "line": line,
        "marker": {"color": ink, "size": size, "symbol": _SYMBOLS[curve.marker], "line": {"width": 1.5, "color": ink}},
        "hovertemplate": re.sub(r"\{(\w+)", lambda m: "%{" + _PLACES[m[1]], _lines(curve.hover))
        + f"<extra>{name}</extra>",
    }
    if curve.values is not None:
        spec["customdata"] = numbers(curve.values)
    if curve.texts:
        spec["text"] = [_lines(text) for text in curve.texts]
    return spec


def _band(band: Band) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": numbers(np.concatenate([band.x, band.x[::-1]])),
        "y": numbers(np.concatenate([band.high, band.low[::-1]])),
        "fill": "toself",
        "fillcolor": f"@{band.ink}",
        "line": {"width": 0, "color": f"@{band.ink}"},
        "opacity": 0.2,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _bars(bars: Bars, percent: bool) -> dict[str, Any]:
    name = escape(bars.name)
    spec: dict[str, Any] = {
        "type": "bar",
        "name": name,
        "x": [escape(group) for group in bars.groups],
        "y": numbers(bars.heights),
        "marker": {"color": f"@{bars.ink}"},
        "hovertemplate": "%{x}: %{y:" + (".1%" if percent else ".4g") + "}<extra>" + name + "</extra>",
    }
    if bars.errors is not None and np.nanmax(bars.errors, initial=0.0) > 0:
        spec["error_y"] = {"type": "data", "array": numbers(bars.errors), "color": "@muted"}
    return spec


def _heat(heat: Heat) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "z": [numbers(row) for row in heat.levels],
        # What a cell says is put together on the page: as texts they would be most of the file.
        "names": [escape(name) for name in heat.names],
        "customdata": [numbers(row) for row in heat.sizes],
        "hovertemplate": "%{text}<extra></extra>",
        "zmin": -heat.decades,
        "zmax": 0,
        "colorscale": "@heat",
        "colorbar": {
            "title": {"text": "‖H_ij‖ / largest", "side": "right"},
            "tickvals": [-decade for decade in range(heat.decades + 1)],
            "ticktext": [*_POWERS[: heat.decades], f"≤ {_POWERS[heat.decades]}"],
            "thickness": 14,
        },
    }


def _surface(surface: Surface) -> dict[str, Any]:
    step = (surface.high - surface.low) / (surface.levels + 1)
    return {
        "type": "contour",
        "name": escape(surface.name),
        "x": numbers(surface.x),
        "y": numbers(surface.y),
        "z": [numbers(row) for row in surface.z],
        "zmin": surface.low,
        "zmax": surface.high,
        "contours": {"start": surface.low + step, "end": surface.high - step, "size": step, "coloring": "heatmap"},
        "line": {"width": 0.6, "color": "white"},
        "colorscale": "Viridis",
        "colorbar": {"title": {"text": escape(surface.name), "side": "right"}, "thickness": 14},
        "hovertemplate": "x = %{x:.3g}, y = %{y:.3g}<br>" + escape(surface.name) + " %{z:.5g}<extra></extra>",
    }


def _layout(panel: Panel) -> dict[str, Any]:
    layout: dict[str, Any] = {"xaxis": _axis(panel.x), "yaxis": _axis(panel.y), "showlegend": _named(panel) > 1}
    if any(isinstance(mark, Bars) for mark in panel.marks):
        layout["xaxis"]["type"] = "category"
        layout["barmode"] = "group"
    for mark in panel.marks:
        if isinstance(mark, Heat):
            still = {"showgrid": False, "zeroline": False, "constrain": "domain"}
            layout["xaxis"] |= still
            layout["square"] = True
            layout["yaxis"] |= {**still, "range": layout["yaxis"]["range"][::-1], "scaleanchor": "x"}
            layout["shapes"] = _outlines(mark)
    return layout


def _named(panel: Panel) -> int:
    return sum(not isinstance(mark, Band) for mark in panel.marks)


def _axis(axis: Axis) -> dict[str, Any]:
    spec: dict[str, Any] = {"title": {"text": escape(axis.label)}}
    if axis.scale == "log":
        spec |= {"type": "log", "exponentformat": "power", "dtick": 1}
    if axis.ticks:
        spec |= {"tickvals": [place for place, _ in axis.ticks], "ticktext": [escape(text) for _, text in axis.ticks]}
    if axis.percent:
        spec["tickformat"] = ".0%"
    if axis.low is not None and axis.high is not None:
        ends = np.array([axis.low, axis.high])
        spec["range"] = numbers(np.log10(ends) if axis.scale == "log" else ends)
    elif axis.low is not None and axis.scale == "linear":
        spec["rangemode"] = "tozero"
    return spec


def _outlines(heat: Heat) -> list[dict[str, Any]]:
    """A frame around each span on the diagonal, and thin rules between spans."""
    end = len(heat.names) - 0.5
    edge, rule = {"color": "@outline", "width": 1.5}, {"color": "@outline", "width": 0.5}
    shapes: list[dict[str, Any]] = []
    for _, start, stop in heat.spans:
        a, b = start - 0.5, stop - 0.5
        shapes.append({"type": "rect", "x0": a, "x1": b, "y0": a, "y1": b, "line": edge})
        if start:
            shapes.append({"type": "line", "x0": a, "x1": a, "y0": -0.5, "y1": end, "line": rule})
            shapes.append({"type": "line", "x0": -0.5, "x1": end, "y0": a, "y1": a, "line": rule})
    return shapes
