"""Pictures show the numbers they are given, on labelled axes."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from hesscope.plots.blocks import draw_heat, draw_norms, heat_figure, layer_bars
from hesscope.plots.style import new_figure
from hesscope.structure import block_norms, heat_map, structure_history
from structure.networks import mlp, problem


@pytest.fixture(autouse=True)
def close_figures() -> Any:
    yield
    plt.close("all")


def test_heat_and_norm_maps_show_their_values() -> None:
    p = problem(mlp(6, 5, 4, bias=True), "cross_entropy")
    heat = heat_map(p, 20)
    axis = heat_figure(heat).axes[0]
    np.testing.assert_allclose(axis.images[0].get_array() ** 2, heat.image, rtol=1e-12)
    assert [label.get_text() for label in axis.get_yticklabels()] == list(p.space.names)
    norms = block_norms(p)
    _, axis = new_figure()
    draw_norms(axis, norms.norms, norms.layers)
    shown = 10.0 ** np.asarray(axis.images[0].get_array())
    first = norms.norms[:5, :5]
    np.testing.assert_allclose(shown[:5, :5], first / first.max(), rtol=1e-9)
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0", "2"]


def test_a_thin_line_survives_a_small_picture() -> None:
    _, axis = new_figure(width=1.0, height=1.0)
    image = np.eye(1000)
    image[:500, :500] = 0
    drawn = draw_heat(axis, image, (0, 500)).get_array()
    assert len(drawn) <= axis.get_window_extent().width
    half = len(drawn) // 2
    assert (np.diagonal(drawn)[half:] == 1).all()
    assert not drawn[: half - 1].any()
    assert axis.get_lines()[0].get_ydata()[0] == pytest.approx(len(drawn) / 2 - 0.5, abs=0.5)


@pytest.mark.parametrize("widths", [(6, 5, 4), (6, 4)])
def test_course_shows_every_score_there_is(widths: tuple[int, ...]) -> None:
    p = problem(mlp(*widths), "cross_entropy")
    later = {name: 2 * value for name, value in p.parameters.items()}
    course = structure_history(p, [(0, p.parameters), (10, later)])
    drawn = {axis.get_ylabel(): axis.get_lines() for axis in course.plot().axes}
    for line, values in zip(drawn.pop("off-diagonal / diagonal norm"), course.ratios.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values)
    (share,) = drawn.pop("share of ‖H‖² between neurons")
    np.testing.assert_array_equal(share.get_ydata(), 1 - course.diagonal_share)
    (loss,) = drawn.pop("loss")
    np.testing.assert_array_equal(loss.get_ydata(), course.loss)
    if len(widths) > 2:
        (stripes,) = drawn.pop("circulant score of H_wv")
        np.testing.assert_array_equal(stripes.get_ydata(), course.circulant)
    assert not drawn


def test_bars_stand_for_the_layers() -> None:
    _, axis = new_figure()
    layer_bars(axis, {"start": {"a": 0.5, "b": 0.25}, "end": {"a": 0.75}})
    heights = [bar.get_height() for bar in axis.patches]
    assert heights[:3] == [0.5, 0.25, 0.75]
    assert np.isnan(heights[3])


def test_short_logarithmic_axes_have_plain_numbers_and_places_that_were_set_stay(tmp_path: Any) -> None:
    figure, axes = new_figure(1, 3)
    for axis, top in zip(axes, (3.0, 30.0, 3000.0), strict=True):
        axis.semilogy([1, 2], [1.5, top])
    axes[0].set_xscale("log")
    axes[0].set_xticks([1, 2], ["one", "two"])
    figure.savefig(tmp_path / "short.png")
    texts = [[label.get_text() for label in axis.get_yticklabels()] for axis in axes]
    assert {"1.5", "2", "2.5", "3"} <= set(texts[0])
    assert {"2", "5", "10", "20"} <= set(texts[1])
    assert any("10^{3}" in text for text in texts[2])
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["one", "two"]
