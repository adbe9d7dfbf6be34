"""What a reader must be able to see in this paper's figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hesscope.experiments.wu2022 import bound_parts, fig5, fig19, table8, theorem4
from hesscope.plots import kron as plots
from hesscope.results.claims import Outcome


def _texts(figure: Any) -> str:
    found = [text for axis in figure.axes for text in (axis.get_title(), *axis.get_legend_handles_labels()[1])]
    return " | ".join([*found, figure.get_supxlabel()])


def _fig19() -> Outcome:
    looks = np.arange(1.0, 16.0)[None].repeat(3, 0)
    part: dict[str, Any] = {"inputs": looks, "outputs": looks}
    part |= {kind: np.ones(3) for kind in ("spectral", "frobenius", "overlap")}
    training = {"lenet5": {"loss": np.array([0.25]), "accuracy": np.array([0.9])}}
    config = {"layers": ("fc1",), "hidden": ("fc1",)}
    return Outcome("wu2022.fig19", config, {"fc1": part, "epochs": np.arange(3), "training": training}, ())


def test_no_line_passes_behind_the_legend_of_the_eigenvalues() -> None:
    figure = fig19.figures(_fig19())["eigenvalues"]
    figure.draw_without_rendering()
    for axis in figure.axes:
        assert axis.get_legend().get_window_extent().x0 >= axis.get_window_extent().x1 - 1


def test_figures_say_how_well_networks_are_trained() -> None:
    assert "LeNet5: loss 0.25, accuracy 0.90" in _texts(fig19.figures(_fig19())["errors"])


def test_names_of_networks_are_those_of_the_paper() -> None:
    pairs = {name: np.ones(3) for name in ("exact", "printed", "principled", "printed_overlap", "principled_overlap")}
    figure = fig5.figures(Outcome("wu2022.fig5", {}, {"F-200^2": pairs}, ()))["printed"]
    assert "F-200²" in _texts(figure)
    assert "^" not in _texts(figure)
    row = {"bound": 0.2, "test_error": 0.1, "history": np.ones((2, 2))}
    drawn = bound_parts.figures(Outcome("x", {"row": "T-200^2_10", "epochs": 2}, {"whole": row}, ()))["parts"]
    assert "T-200²₁₀, 2 epochs" in _texts(drawn)
    assert "bound of the whole method" in _texts(drawn)


def test_symbols_are_set_as_mathematics() -> None:
    names = ("layer overlap", "corrected overlap", "printed overlap", "layer gap", "output gap", "corrected error")
    data: dict[str, Any] = {name: np.ones((2, 3)) for name in (*names, "printed error")}
    figure = theorem4.figures(Outcome("x", {}, data | {"widths": np.array([20, 60])}, ()))["theorems"]
    assert r"$\lambda_c/\lambda_{c-1}$" in _texts(figure)


def test_the_papers_numbers_stand_out_from_the_bars_they_belong_to() -> None:
    """One mark on each printed bar of the table, above everything and not in the colour of the page."""
    found = {"layers": np.array(["fc1", "fc2"]), "corrected": np.array([0.9, 0.8]), "printed": np.array([0.7, 0.6])}
    figure = table8.figures(Outcome("x", {}, {"initialisation": found, "mnist/F": found}, ()))["overlap"]
    (axis,) = figure.axes
    marks = [line for line in axis.lines if line.get_marker() == "D"]
    assert [float(np.asarray(mark.get_ydata())[0]) for mark in marks] == [0.602, 0.967]
    assert all(mark.get_zorder() > 5 and mark.get_markerfacecolor() != "white" for mark in marks)


def test_bars_that_are_estimates_carry_their_standard_error() -> None:
    from hesscope.experiments.wu2022._drawing import with_errors

    figure = with_errors(
        plots.bars(["a", "b"], {"x": [1, 2], "y": [3, 2]}, "error"), [[0.1, 0.2], [0, np.nan]], "± s.e."
    )
    (axis,) = figure.axes
    assert len(axis.collections) == 2, "none on exact numbers"
    assert [text for text in axis.get_legend_handles_labels()[1] if text == "± s.e."] == ["± s.e."]


@pytest.mark.parametrize("said", ["mnist-R/F", "digits"])
def test_other_names_are_left_as_they_are(said: str) -> None:
    from hesscope.experiments.wu2022._drawing import as_printed

    assert as_printed(said) == said
