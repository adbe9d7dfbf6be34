"""Interactive figures as plain Plotly specifications; colours are names that the page resolves per theme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ..measure import Array
from ..plots import views
from ..plots.block_map import layer_spans, log_norms
from ..results.analysis import Analysis
from ..results.blocks import BlockNorms
from ..results.history import TrainingHistory
from ..results.kronecker import KroneckerComparison
from ..rmt import Fit

INKS = ("@measured", "@accent")
PREDICTED = "theory: E[M] ⊗ E[xxᵀ] by layer"


@dataclass(frozen=True)
class View:
    """One way to look at a figure: what Plotly draws."""

    label: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]


@dataclass(frozen=True)
class InteractiveFigure:
    """A figure with one or more views; the first is shown first."""

    name: str
    title: str
    views: tuple[View, ...]
    height: int = 430


def numbers(values: Array) -> list[float | None]:
    """Five significant digits, None for what is not finite: enough for a picture, and small."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(values, float).ravel()]


def spectrum_views(a: Analysis) -> InteractiveFigure:
    """Density over a signed-log axis, over a linear axis, and counts on two logarithmic axes."""
    return InteractiveFigure("spectrum", "Spectrum", (_signed_log(a), _linear(a), _counts(a)), 460)


def _signed_log(a: Analysis) -> View:
    named = views.spectra(a)
    unit = views.unit_of(named[0][1])
    data, left, right = [], 0.0, 0.0
    for (name, measure), ink in zip(named, INKS, strict=False):
        curve = views.signed_log_density(measure, unit)
        left, right = min(left, float(curve.x[0])), max(right, float(curve.x[-1]))
        data.append(_line(name, views.signed_log(curve.x, unit), curve.y, ink, curve.x))
    if a.prediction is not None:
        curve = views.signed_log_density(a.prediction.measure(), unit)
        data.append(_line(PREDICTED, views.signed_log(curve.x, unit), curve.y, "@theory", curve.x))
    if a.fit is not None:
        x, y = _law_curve(a.fit)
        y = y * np.sqrt(x**2 + unit**2)
        data.append(_law(a.fit, views.signed_log(x, unit), y, x))
    floor = 0.05 / a.size
    data += _rugs(a, lambda values: views.signed_log(values, unit), 2 * floor)
    places, labels = views.ticks(unit, left, right)
    ceiling = max(float(np.nanmax(np.array(trace["y"], float))) for trace in data)
    layout = {
        "xaxis": {"title": {"text": "eigenvalue λ (signed logarithm)"}, "tickvals": places, "ticktext": labels},
        "yaxis": _density_axis(floor, ceiling, "density per unit of the axis"),
    }
    return View("Signed log", data, layout)


def _linear(a: Analysis) -> View:
    named = views.spectra(a)
    low = min(float(measure.nodes[0]) for _, measure in named)
    high = max(float(measure.nodes[-1]) for _, measure in named)
    margin = 0.04 * (high - low or 1.0)
    data = []
    for (name, measure), ink in zip(named, INKS, strict=False):
        curve = views.density(measure, low - margin, high + margin)
        data.append(_line(name, curve.x, curve.y, ink, curve.x))
    if a.prediction is not None:
        curve = views.density(a.prediction.measure(), low - margin, high + margin)
        data.append(_line(PREDICTED, curve.x, curve.y, "@theory", curve.x))
    if a.fit is not None:
        x, y = _law_curve(a.fit)
        data.append(_law(a.fit, x, y, x))
    ceiling = max(float(np.nanmax(np.array(trace["y"], float))) for trace in data)
    floor = 0.05 / a.size / (high - low or 1.0)
    data += _rugs(a, lambda values: values, 2 * floor)
    layout = {
        "xaxis": {"title": {"text": "eigenvalue λ"}},
        "yaxis": _density_axis(floor, ceiling, "density (logarithmic)"),
    }
    return View("Linear", data, layout)


def _counts(a: Analysis) -> View:
    data = []
    for (name, measure), ink in zip(views.spectra(a), INKS, strict=False):
        for sign, dash in ((1, "solid"), (-1, "dot")):
            curve = views.counts(measure, a.size, sign)
            if curve.x.size == 0:
                continue
            side = "λ > t" if sign > 0 else "λ < −t"
            line = _line(f"{name}, {side}", curve.x, curve.y, ink, curve.x)
            line["line"] = {"color": ink, "width": 2, "dash": dash, "shape": "hv"}
            line["hovertemplate"] = "%{y:.1f} eigenvalues beyond %{x:.3g}<extra></extra>"
            data.append(line)
    if a.prediction is not None:
        curve = views.counts(a.prediction.measure(), a.size, 1)
        line = _line(PREDICTED, curve.x, curve.y, "@theory", curve.x)
        line["line"] = {"color": "@theory", "width": 2, "shape": "hv"}
        data.append(line)
    data += _rugs(a, lambda values: values, None)
    layout = {
        "xaxis": {"type": "log", "title": {"text": "size t"}, "exponentformat": "power", "dtick": 1},
        "yaxis": {"type": "log", "title": {"text": "eigenvalues beyond t"}, "exponentformat": "power", "dtick": 1},
    }
    return View("Counts", data, layout)


def _density_axis(floor: float, ceiling: float, title: str) -> dict[str, Any]:
    span = [float(np.log10(floor)), float(np.log10(max(ceiling, 10 * floor))) + 0.3]
    return {"type": "log", "range": span, "title": {"text": title}, "exponentformat": "power", "dtick": 1}


def _line(name: str, x: Array, y: Array, ink: str, values: Array) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": escape(name),
        "x": numbers(x),
        "y": numbers(np.where(np.asarray(y) > 1e-14, y, np.nan)),
        "customdata": numbers(values),
        "line": {"color": ink, "width": 2},
        "hovertemplate": "λ = %{customdata:.4g}<br>density %{y:.3g}<extra>" + escape(name) + "</extra>",
    }


def _law_curve(fit: Fit, points: int = 400) -> tuple[Array, Array]:
    low, high = (float(q) for q in fit.law.quantile([1e-4, 1 - 1e-4]))
    x = np.linspace(low, high, points)
    return x, np.asarray(fit.law.density(x))


def _law(fit: Fit, x: Array, y: Array, values: Array) -> dict[str, Any]:
    line = _line(
        f"closest law: {fit.family.replace('_', '-')} (distance {fit.kolmogorov:.2f})", x, y, "@theory", values
    )
    line["line"] = {"color": "@theory", "width": 2, "dash": "dot"}
    return line


def _rugs(a: Analysis, place: Callable[[Array], Array], height: float | None) -> list[dict[str, Any]]:
    """Measured and predicted large eigenvalues; at their rank where there is no common height."""
    values, residuals = a.largest.values, a.largest.residuals
    text = []
    for rank, (value, residual) in enumerate(zip(values, residuals, strict=True), 1):
        part = a.gauss_newton_parts
        share = "" if part is None else f"<br>Gauss-Newton {np.asarray(part.value)[rank - 1] / value:.1%}"
        text.append(f"λ<sub>{rank}</sub> = {value:.5g} ± {residual:.1g}{share}")
    made = [_markers("resolved one by one", place(values), _heights(values, height), text, "@highlight", "diamond")]
    if a.prediction is not None and a.prediction.largest.size:
        guessed = a.prediction.largest[a.prediction.largest > 0]
        text = [f"λ<sub>{rank}</sub> predicted: {value:.5g}" for rank, value in enumerate(guessed, 1)]
        raised = None if height is None else 2.2 * height
        heights = _heights(guessed, raised)
        made.append(_markers("predicted outliers", place(guessed), heights, text, "@theory", "diamond-open"))
    return made


def _heights(values: Array, height: float | None) -> Array:
    return np.arange(1.0, values.size + 1) if height is None else np.full(values.size, height)


def _markers(name: str, x: Array, y: Array, text: list[str], ink: str, symbol: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": numbers(x),
        "y": numbers(y),
        "text": text,
        "marker": {"color": ink, "size": 8, "symbol": symbol, "line": {"width": 1.5, "color": ink}},
        "hovertemplate": "%{text}<extra></extra>",
    }


def block_views(maps: tuple[BlockNorms, ...]) -> InteractiveFigure:
    """One heat map per partition, finest first, with layers outlined."""
    ordered = sorted(maps, key=lambda m: -len(m.names))
    return InteractiveFigure("blocks", "Block map", tuple(_block_view(m) for m in ordered), 620)


def _block_view(blocks: BlockNorms) -> View:
    names = [escape(name) for name in blocks.names]
    count = len(names)
    relative = log_norms(blocks.norms)
    largest = float(np.max(blocks.norms)) or 1.0
    text = [
        [
            f"{names[i]} × {names[j]}<br>‖H_ij‖ = {blocks.norms[i, j]:.4g}<br>{blocks.norms[i, j] / largest:.2%} of the largest"
            for j in range(count)
        ]
        for i in range(count)
    ]
    heat = {
        "type": "heatmap",
        "z": [numbers(row) for row in relative],
        "text": text,
        "hovertemplate": "%{text}<extra></extra>",
        "zmin": -5,
        "zmax": 0,
        "colorscale": "@heat",
        "colorbar": {
            "title": {"text": "‖H_ij‖ / largest", "side": "right"},
            "tickvals": [-5, -4, -3, -2, -1, 0],
            "ticktext": ["≤ 10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "1"],
            "thickness": 14,
        },
    }
    spans = layer_spans(blocks.layers)
    edge = {"color": "@outline", "width": 1.5}
    shapes = [
        {"type": "rect", "x0": a - 0.5, "x1": b - 0.5, "y0": a - 0.5, "y1": b - 0.5, "line": edge} for _, a, b in spans
    ]
    rules = {"color": "@outline", "width": 0.5}
    for _, start, _ in spans[1:]:
        shapes.append(
            {"type": "line", "x0": start - 0.5, "x1": start - 0.5, "y0": -0.5, "y1": count - 0.5, "line": rules}
        )
        shapes.append(
            {"type": "line", "y0": start - 0.5, "y1": start - 0.5, "x0": -0.5, "x1": count - 0.5, "line": rules}
        )
    axis = {
        "tickvals": [(a + b - 1) / 2 for _, a, b in spans],
        "ticktext": [escape(layer) for layer, _, _ in spans],
        "showgrid": False,
        "zeroline": False,
        "constrain": "domain",
    }
    layout = {
        "xaxis": {**axis, "title": {"text": f"block (by {blocks.partition})"}, "range": [-0.5, count - 0.5]},
        "yaxis": {**axis, "range": [count - 0.5, -0.5], "scaleanchor": "x"},
        "shapes": shapes,
    }
    return View(f"By {blocks.partition} ({count})", [heat], layout)


def decoupling_views(layers: tuple[KroneckerComparison, ...]) -> InteractiveFigure:
    """Errors per layer, overlap of the top spaces, and eigenvalues true and approximate."""
    names = [escape(layer.layer) for layer in layers]
    bars = [
        {
            "type": "bar",
            "name": label,
            "x": names,
            "y": numbers(np.array(values)),
            "marker": {"color": ink},
            "hovertemplate": "%{x}: %{y:.1%}<extra>" + label + "</extra>",
        }
        for label, values, ink in (
            ("Frobenius error", [d.frobenius_error for d in layers], "@measured"),
            ("spectral error", [d.spectral_error for d in layers], "@accent"),
        )
    ]
    errors = View(
        "Error",
        bars,
        {
            "yaxis": {
                "title": {"text": "relative error of the Kronecker form"},
                "tickformat": ".0%",
                "rangemode": "tozero",
            },
            "xaxis": {"type": "category"},
            "barmode": "group",
        },
    )
    overlaps, values = [], []
    for number, layer in enumerate(layers):
        ink = f"@cycle{number % 6}"
        label = names[number]
        rank = np.arange(1.0, layer.overlap.size + 1)
        overlaps.append(_series(label, rank, layer.overlap, ink, "top %{x}: overlap %{y:.3f}", "lines+markers"))
        for kind, series, dash in (
            ("exact", layer.eigenvalues, "solid"),
            ("Kronecker", layer.approximate_eigenvalues, "dot"),
        ):
            line = _series(
                f"{label}, {kind}", np.arange(1.0, series.size + 1), series, ink, "λ_%{x} = %{y:.4g}", "lines+markers"
            )
            line["line"]["dash"] = dash
            values.append(line)
    overlap = View(
        "Overlap",
        overlaps,
        {
            "xaxis": {"title": {"text": "dimension j of the top eigenspace"}},
            "yaxis": {"title": {"text": "overlap with the exact eigenspace"}, "range": [0, 1.03]},
        },
    )
    eigenvalues = View(
        "Eigenvalues",
        values,
        {
            "xaxis": {"title": {"text": "rank"}},
            "yaxis": {"title": {"text": "eigenvalue"}, "type": "log", "exponentformat": "power", "dtick": 1},
        },
    )
    return InteractiveFigure("decoupling", "Kronecker structure per layer", (errors, overlap, eigenvalues))


def course_views(course: TrainingHistory) -> InteractiveFigure:
    """One view per number along training."""
    parts = (
        ("Sharpness", course.sharpness, "sharpness λ_max"),
        ("Trace", course.trace, "trace of H"),
        ("Loss", course.loss, "loss"),
        ("Between layers", 1 - course.diagonal_share, "share of ‖H‖² between layers"),
    )
    labels = [escape(label) for label in course.labels]
    made = []
    for label, series, title in parts:
        if np.isfinite(series).any():
            line = _series(title, np.zeros(0), series, "@measured", "step %{x}: %{y:.4g}", "lines+markers")
            line["x"] = labels
            layout = {
                "xaxis": {"type": "category", "title": {"text": "training step"}},
                "yaxis": {"title": {"text": title}, "rangemode": "tozero"},
                "showlegend": False,
            }
            made.append(View(label, [line], layout))
    return InteractiveFigure("course", "Along training", tuple(made), 380)


def _series(name: str, x: Array, y: Array, ink: str, hover: str, mode: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": numbers(x),
        "y": numbers(y),
        "line": {"color": ink, "width": 2},
        "marker": {"color": ink, "size": 6},
        "hovertemplate": hover + "<extra>" + name + "</extra>",
    }
