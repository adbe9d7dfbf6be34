"""One look for every figure: measured in ink, theory in orange, quiet axes, no global state."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from ..errors import HesscopeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED = "#1f3a5f"
THEORY = "#d9631e"
ACCENT = "#2a8c82"
MUTED = "#8a8f98"
CYCLE = (MEASURED, THEORY, ACCENT, "#8e4a9e", "#b8860b", "#4a6fa5", "#c2455c", MUTED)
WIDEST, NARROWEST = 11.0, 2.2  # inches: of panels beside each other, and of one of them
SEQUENTIAL = "magma"
VALUES = "viridis"  # of plain values, where dark is not "none"
# The colours that pictures name; the page has its own, for light and dark, in page.css.
INKS = {"measured": MEASURED, "accent": ACCENT, "theory": THEORY, "highlight": "#a32f5a", "muted": MUTED}
INKS |= {f"cycle{number}": ink for number, ink in enumerate(CYCLE)}


def new_figure(
    rows: int = 1, columns: int = 1, width: float = 6.0, height: float = 3.8, **kwargs: Any
) -> tuple[Figure, Any]:
    """A figure of `rows` x `columns` panels, each `width` x `height` inches, and its axes (as `Figure.subplots` returns)."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HesscopeError("figures need matplotlib; it is not installed. pip install hesscope[plots]") from error

    class NotebookFigure(Figure):
        """Shown by a notebook that has no pyplot, as the last line of a cell."""

        def _repr_png_(self) -> bytes:
            return png_of(self, 90)

        def savefig(self, *args: Any, **kwargs: Any) -> None:
            plain_logs(self)
            super().savefig(*args, **kwargs)

    # Beyond a page's width letters shrink with the whole: panels beside each other grow narrower instead.
    width = min(width, max(WIDEST / columns, NARROWEST)) if columns > 1 else width
    figure = NotebookFigure(figsize=(width * columns, height * rows), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, **kwargs)
    for axis in figure.axes:
        quiet(axis)
    return figure, axes


def plain_logs(figure: Any) -> None:
    """On logarithmic axes of less than two decades 0.5, 1, 2 in the place of 5 x 10^-1: places that were set stay."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            if axis.get_scale() != "log" or not isinstance(axis.get_major_locator(), LogLocator) or high >= 100 * low:
                continue
            wide = high > 4 * low
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(5, steps=[1, 2, 5, 10]))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
            if not wide:
                axis.set_minor_locator(NullLocator())


def png_of(figure: Any, dpi: float | str = "figure") -> bytes:
    """The figure as the bytes of a picture."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi)
    return out.getvalue()


def panel_grid(count: int, columns: int, **kwargs: Any) -> tuple[Figure, list[Any]]:
    """As `new_figure`, for `count` panels in rows of so many `columns`; places beyond them stay empty."""
    figure, axes = new_figure(-(-count // columns), columns, squeeze=False, **kwargs)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, list(axes.flat[:count])


def quiet(axis: Any) -> None:
    """Leave only the axes and a light grid, so that the data speak."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(True, color="#e6e8eb", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=9)
    axis.set_prop_cycle(color=CYCLE)
