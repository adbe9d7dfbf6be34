"""Pictures of layers: norms of their blocks, how Kronecker they are, and both along training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..results.blocks import BlockNorms
from ..results.history import TrainingHistory
from ..results.kronecker import KroneckerComparison
from ..results.layers import LayerTable
from .picture import Axis, Bars, Curve, Heat, Panel, Picture, layer_spans, span_ticks


def blocks_picture(maps: Sequence[BlockNorms]) -> Picture:
    """One heat map per partition, finest first."""
    ordered = sorted(maps, key=lambda norms: -len(norms.names))
    return Picture("blocks", "Block map", tuple(norms_panel(norms) for norms in ordered), 620)


def norms_panel(norms: BlockNorms) -> Panel:
    """‖H_IJ‖ on a logarithmic colour scale, one cell per pair of blocks, layers outlined."""
    spans, count = layer_spans(norms.layers), len(norms.names)
    axis = Axis(f"block (by {norms.partition})", ticks=span_ticks(spans), low=-0.5, high=count - 0.5)
    heat = Heat(norms.names, norms.norms, spans)
    of = ", Gauss-Newton" if norms.letter == "G" else ""
    return Panel(f"By {norms.partition}{of} ({count})", f"blocks-{norms.partition}", (heat,), axis, axis)


def kronecker_picture(layers: Sequence[KroneckerComparison]) -> Picture:
    """Errors per layer, overlap of the top spaces, and eigenvalues true and approximate."""
    names = tuple(layer.layer for layer in layers)
    errors = (
        Bars("Frobenius error", names, np.array([layer.frobenius_error for layer in layers]), "measured"),
        Bars("spectral error", names, np.array([layer.spectral_error for layer in layers]), "accent"),
    )
    overlaps, values = [], []
    for number, layer in enumerate(layers):
        ink = f"cycle{number % 6}"
        rank = np.arange(1.0, layer.overlap.size + 1)
        hover = "top {x}: overlap {y:.3f}"
        overlaps.append(Curve(layer.layer, rank, layer.overlap, ink, marker="dot", hover=hover))
        for kind, series in (("exact", layer.eigenvalues), ("Kronecker", layer.approximate_eigenvalues)):
            positive = np.where(series > 0, series, np.nan)
            line = "solid" if kind == "exact" else "dashed"
            name, rank = f"{layer.layer}, {kind}", np.arange(1.0, series.size + 1)
            values.append(Curve(name, rank, positive, ink, line, "dot", "λ_{x} = {y:.4g}"))  # type: ignore[arg-type]
    error_axis = Axis("relative error of the Kronecker form", low=0.0, percent=True)
    overlap_axis = Axis("overlap with the exact eigenspace", low=0.0, high=1.03)
    panels = (
        Panel("Error", "decoupling", errors, Axis(), error_axis),
        Panel(
            "Overlap",
            "decoupling",
            tuple(overlaps),
            Axis("dimension j of the top eigenspace", counts=True),
            overlap_axis,
        ),
        Panel("Eigenvalues", "decoupling", tuple(values), Axis("rank", counts=True), Axis("eigenvalue", "log")),
    )
    return Picture("decoupling", "Kronecker structure per layer", panels)


def layer_table_picture(table: LayerTable) -> Picture:
    """One panel per number, a bar for each layer."""
    parts = (
        ("Share", table.share, table.share_stderr, "share of the trace", "measured", True),
        ("Top eigenvalue", table.top, table.top_error, "largest eigenvalue λ_max", "measured", False),
        ("Frobenius norm", table.frobenius, table.frobenius_stderr, "‖H‖_F of the layer", "measured", False),
        ("Stable rank", table.stable_rank, table.stable_rank_stderr, "stable rank ‖H‖_F² / ‖H‖²", "accent", False),
        ("Kronecker", table.kronecker_error, table.kronecker_stderr, "error of E[M] ⊗ E[xxᵀ]", "accent", True),
    )
    panels = []
    for label, values, errors, title, ink, percent in parts:
        if np.isfinite(values).any():
            bars = Bars(title, table.names, values, ink, errors)
            axis = Axis(title, low=min(0.0, float(np.nanmin(values))), percent=percent)
            panels.append(Panel(label, "layers", (bars,), Axis(), axis))
    return Picture("layers", "Layer by layer", tuple(panels), 400)


def history_picture(history: TrainingHistory) -> Picture:
    """One panel per number along training; ratios of blocks have one curve per layer."""
    blocks = f"{history.snapshots[0].partition}s" if history.snapshots else "blocks"
    parts = (  # label, axis, curves by name
        ("Sharpness", "sharpness λ_max", {"": history.sharpness}),
        ("Trace", "trace of H", {"": history.trace}),
        ("Loss", "loss", {"": history.loss}),
        (f"Between {blocks}", f"share of ‖H‖² between {blocks}", {"": 1 - history.diagonal_share}),
        ("Within layers", "off-diagonal / diagonal norm", history.ratios),
        ("Stripes", "circulant score of H_wv", {"": history.circulant}),
    )
    places = np.arange(float(len(history.labels)))
    x = Axis("training step", ticks=tuple(zip(places.tolist(), history.labels, strict=True)))
    panels = []
    for label, title, lines in parts:
        seen = {name: series for name, series in lines.items() if series.size and np.isfinite(series).any()}
        hover = "step {text}: {y:.4g}"
        curves = [
            Curve(name or title, places, series, ink, marker="dot", hover=hover, texts=history.labels)
            for (name, series), ink in zip(seen.items(), _inks(len(seen)), strict=True)
        ]
        if curves:
            low = min(0.0, *(float(np.nanmin(curve.y)) for curve in curves))
            panels.append(Panel(label, "history", tuple(curves), x, Axis(title, low=low)))
    return Picture("history", "Along training", tuple(panels), 380)


def _inks(count: int) -> list[str]:
    return ["measured"] if count == 1 else [f"cycle{number % 6}" for number in range(count)]
