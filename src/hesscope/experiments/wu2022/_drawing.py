"""What figures of this paper need besides the common ones: names as printed, error bars on bars, legends beside panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...plots.style import MUTED

SHOWN = {"dense": "dense network", "lenet5": "LeNet5", "vgg11": "VGG11", "resnet18": "ResNet18"}
UP, DOWN = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"), str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def as_printed(name: str) -> str:
    """ "T-200^2_10" as "T-200²₁₀", and networks as the paper writes them."""
    if name in SHOWN or ("^" not in name and not name.startswith(("T-", "R-"))):
        return SHOWN.get(name, name)
    rest, _, below = name.partition("_")
    base, _, power = rest.partition("^")
    return base + power.translate(UP) + below.translate(DOWN)


def legends_beside(figure: Any) -> Any:
    """Every legend to the right of its panel, where no line passes behind it."""
    for axis in figure.axes:
        if axis.get_legend() is not None:
            axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    return figure


def with_errors(figure: Any, errors: Sequence[ArrayLike], said: str) -> Any:
    """A figure of bars with a whisker on each: half lengths for every name of the legend, 0 where a number is exact."""
    (axis,) = figure.axes
    label: str | None = said
    for container, lengths in zip(list(axis.containers), errors, strict=True):
        for bar, half in zip(container, np.asarray(lengths, dtype=float), strict=True):
            if half > 0:
                middle = bar.get_x() + bar.get_width() / 2
                axis.errorbar(
                    [middle],
                    [bar.get_height()],
                    yerr=[half],
                    fmt="none",
                    ecolor="black",
                    capsize=2.5,
                    lw=1,
                    label=label,
                )
                label = None
    axis.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return figure


def printed_marks(figure: Any, container: int, printed: Sequence[float]) -> Any:
    """The paper's own number for every bar of one name: a line across the bar and beyond, above everything else."""
    (axis,) = figure.axes
    bars = axis.containers[container]
    label: str | None = "paper's number"
    for bar, value in zip(bars, printed, strict=True):
        if np.isfinite(value):
            middle = bar.get_x() + bar.get_width() / 2
            axis.plot(
                [middle], [value], "D", color="#f5d547", mec="black", mew=1.0, ms=7, zorder=10, clip_on=False, label=label
            )  # fmt: skip
            label = None
    axis.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return figure


def line_below(figure: Any, text: str) -> None:
    """One quiet line below all panels."""
    figure.supxlabel(text, fontsize=8, color=MUTED, wrap=True)
