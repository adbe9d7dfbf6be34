"""What a picture shows, said once: curves, bars and heat maps with axes and colours by name; nothing is drawn here.

`plots.static` draws a picture by matplotlib for papers, `report.interactive` by Plotly for the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np

from ..measure import Array

Span = tuple[str, int, int]


@dataclass(frozen=True)
class Axis:
    """`ticks` are (place, label) where numbers are not to speak for themselves; `low`, `high` None: as the data has it."""

    label: str = ""
    scale: Literal["linear", "log"] = "linear"
    ticks: tuple[tuple[float, str], ...] = ()
    low: float | None = None
    high: float | None = None
    percent: bool = False
    counts: bool = False  # whole numbers only


@dataclass(frozen=True, eq=False)
class Curve:
    """y over x. `hover` is what a point says: {x}, {y}, {value} (one of `values` each) or {text} (one of `texts`)."""

    name: str
    x: Array
    y: Array
    ink: str
    line: Literal["solid", "dashed", "steps", "dashed steps", "none"] = "solid"
    marker: Literal["none", "dot", "diamond", "open diamond"] = "none"
    hover: str = "{y:.4g}"
    values: Array | None = None
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Band:
    """What lies between `low` and `high` over x: the error of a curve of the same ink."""

    x: Array
    low: Array
    high: Array
    ink: str


@dataclass(frozen=True, eq=False)
class Bars:
    """One bar per group, beside those of other bars of the same panel; `errors` are drawn as whiskers."""

    name: str
    groups: tuple[str, ...]
    heights: Array
    ink: str
    errors: Array | None = None


@dataclass(frozen=True, eq=False)
class Heat:
    """A square matrix of sizes in decades below the largest one; `spans` outlines runs of rows that belong together."""

    names: tuple[str, ...]
    sizes: Array
    spans: tuple[Span, ...]
    decades: int = 5

    @property
    def levels(self) -> Array:
        """log₁₀ of the sizes relative to the largest, cut `decades` down."""
        return log_sizes(self.sizes, self.decades)


@dataclass(frozen=True, eq=False)
class Surface:
    """z over the plane: `z[i, j]` at y[i], x[j]; colours run from `low` to `high`, contours are drawn at `levels`."""

    name: str
    x: Array
    y: Array
    z: Array
    low: float
    high: float
    levels: int = 12


Mark = Curve | Band | Bars | Heat | Surface


@dataclass(frozen=True, eq=False)
class Panel:
    """One set of axes: a view on the page; panels with the same `file` stand side by side on paper."""

    label: str
    file: str
    marks: tuple[Mark, ...]
    x: Axis
    y: Axis


@dataclass(frozen=True, eq=False)
class Picture:
    """Panels about one thing; the page shows the first one first."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    height: int = 430  # on the page, in pixels


def layer_spans(layers: Sequence[str]) -> tuple[Span, ...]:
    """(layer, first block, one past the last) for each run of blocks of one layer."""
    spans, start = [], 0
    for layer, run in groupby(layers):
        count = sum(1 for _ in run)
        spans.append((layer, start, start + count))
        start += count
    return tuple(spans)


def log_sizes(sizes: Any, decades: int = 5) -> Array:
    """log₁₀ of sizes relative to the largest, cut `decades` below it."""
    largest = float(np.max(sizes)) or 1.0
    return np.asarray(np.log10(np.maximum(np.asarray(sizes) / largest, 10.0**-decades)))


def span_ticks(spans: Sequence[Span], most: int = 28) -> tuple[tuple[float, str], ...]:
    """A tick in the middle of each span; where they would stand on top of each other, the wider spans keep theirs."""
    size = spans[-1][2] if spans else 0
    ticks: list[tuple[float, str]] = []
    for name, start, stop in sorted(spans, key=lambda span: span[1] - span[2]):
        place = (start + stop - 1) / 2
        if all(abs(place - other) >= size / most for other, _ in ticks):
            ticks.append((place, name))
    return tuple(sorted(ticks))
