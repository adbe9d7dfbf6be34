"""Each picture is described once: paper and page show the same curves, bars and cells, and names that fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from hesscope.plots.analysis import pictures_of
from hesscope.plots.layers import norms_panel
from hesscope.plots.picture import Axis, Bars, Curve, Panel, layer_spans, span_ticks
from hesscope.plots.static import figure_of
from hesscope.report.interactive import specification
from hesscope.results.blocks import BlockNorms
from report.samples import HOSTILE, sample

PANELS = [(picture, number) for picture in pictures_of(sample()) for number in range(len(picture.panels))]


@pytest.mark.parametrize(("picture", "number"), PANELS, ids=lambda p: p.name if hasattr(p, "name") else str(p))
def test_paper_and_page_show_the_same_numbers(picture: Any, number: int) -> None:
    panel, view = picture.panels[number], specification(picture)["views"][number]
    axis = figure_of([panel]).axes[0]
    assert len(view["data"]) == len(panel.marks)
    for mark, trace in zip(panel.marks, view["data"], strict=True):
        if isinstance(mark, Curve):
            line = next(line for line in axis.get_lines() if line.get_label() == mark.name)
            shown = np.array(trace["y"], dtype=float)
            np.testing.assert_allclose(np.array(trace["x"], dtype=float), line.get_xdata(), rtol=1e-4)
            np.testing.assert_allclose(shown, np.asarray(line.get_ydata(), float), rtol=1e-4)
        elif isinstance(mark, Bars):
            bars = next(bars for bars in axis.containers if bars.get_label() == mark.name)
            np.testing.assert_allclose([bar.get_height() for bar in bars], trace["y"], rtol=1e-4)
        else:
            np.testing.assert_allclose(axis.get_images()[0].get_array(), np.array(trace["z"]), rtol=1e-4)
    assert axis.get_xlabel() == panel.x.label
    for which, described in (("xaxis", panel.x), ("yaxis", panel.y)):
        assert view["layout"][which]["title"]["text"] == described.label
        assert (view["layout"][which].get("type") == "log") == (described.scale == "log")


def _overlaps(panel: Panel) -> int:
    """How many neighbouring tick labels stand on each other, as drawn."""
    figure = figure_of([panel])
    FigureCanvasAgg(figure).draw()
    axis, overlapping = figure.axes[0], 0
    for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels if label.get_text() and label.get_rotation() == 0]
        overlapping += sum(a.overlaps(b) for a, b in pairwise(boxes))
    return overlapping


def test_names_of_many_layers_do_not_stand_on_each_other() -> None:
    names = tuple(f"transformer.h.{i // 4}.{part}" for i in range(0, 96, 4) for part in ("ln", "attn", "mlp", "out"))
    norms = np.ones((96, 96))
    blocks = BlockNorms(norms, 0 * norms, names, names, np.ones(96), "hessian", True, 0, "layer")
    panel = norms_panel(blocks)
    assert 10 < len(panel.x.ticks) <= 28
    assert _overlaps(panel) == 0
    crowded = replace(panel, y=replace(panel.y, ticks=tuple((float(i), name) for i, name in enumerate(names))))
    assert _overlaps(crowded) > 10  # what the rule is for


def test_a_thin_layer_leaves_its_name_to_wider_ones() -> None:
    spans = layer_spans(("wide",) * 100 + ("thin",) + ("broad",) * 99)
    assert [name for _, name in span_ticks(spans)] == ["wide", "thin", "broad"]
    spans = layer_spans(("wide",) * 10 + ("thin",) + ("thinner",) + ("broad",) * 188)
    assert [name for _, name in span_ticks(spans)] == ["wide", "broad"]


def test_hostile_names_draw_as_they_are() -> None:
    for picture in pictures_of(sample(HOSTILE + "$x_{$")):
        for panel in picture.panels:
            FigureCanvasAgg(figure_of([panel])).draw()
        assert "<script>" not in str(specification(picture))


def test_long_names_beside_each_other_leave_room_for_the_axes(tmp_path: Path) -> None:
    """Layers of transformers: matplotlib gives up its layout, and crops, where names take all of a figure."""
    names = tuple(f"layers.{number}.self_attn.out_proj" for number in range(3))
    k = np.arange(1.0, 6.0)
    bars = tuple(Bars(f"{kind} error", names, np.full(3, 0.175), "measured") for kind in ("Frobenius", "spectral"))
    curves = tuple(Curve(f"{name}, {kind}", k, 1 / k, "cycle0") for name in names for kind in ("exact", "Kronecker"))
    axes = Axis("relative error of the Kronecker form", percent=True), Axis("eigenvalue", "log")
    panels = [
        Panel("Error", "x", bars, Axis(), axes[0]),
        Panel("Overlap", "x", curves[::2], Axis("dimension j of the top eigenspace"), Axis("overlap")),
        Panel("Eigenvalues", "x", curves, Axis("rank"), axes[1]),
    ]
    figure = figure_of(panels)
    for ending in ("pdf", "png"):
        figure.savefig(tmp_path / f"drawn.{ending}")
    for axis in figure.axes:
        assert axis.get_position().height > 0.4
        legend = axis.get_legend().get_window_extent()
        assert legend.x1 <= figure.get_window_extent().x1
    assert "17.5%" in [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_bars_without_a_number_keep_their_place() -> None:
    heights = np.array([np.nan, np.nan, 0.5, np.nan])
    axis = figure_of([Panel("x", "x", (Bars("error", tuple("abcd"), heights, "accent"),), Axis(), Axis())]).axes[0]
    low, high = axis.get_xlim()
    assert low < -0.4
    assert high > 3.4
