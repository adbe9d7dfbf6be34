"""A figure for every result: what `result.plot()` draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import refuse
from ..measure import AtomicMeasure, Measure
from ..results.analysis import Analysis
from ..results.blocks import BlockNorms, BlockSpectra, HeatMap, OutputNorms
from ..results.claims import Outcome
from ..results.history import TrainingHistory
from ..results.kronecker import KroneckerComparison, KroneckerErrors
from ..results.layers import LayerTable
from ..results.spectra import Eigenpairs, Estimate, SpectralDensity
from ..tables import ROWS_SHOWN, Tabular, short
from .analysis import pictures_of
from .blocks import heat_figure
from .layers import history_picture, kronecker_picture, layer_table_picture, norms_panel
from .picture import Axis, Bars, Panel
from .spectrum import spectrum_panel
from .static import figure_of
from .style import ACCENT, INKS, MEASURED, new_figure


def figure_of_result(result: Any, **options: Any) -> Any:
    """The figure of its kind; a result without one is drawn as its table."""
    for kind, draw in _DRAWN.items():
        if isinstance(result, kind):
            return draw(result, **options)
    return (
        _factors(result) if hasattr(result, "input_autocorrelation") and isinstance(result, Tabular) else _table(result)
    )


def spectrum_figure(measured: Any, theory: Any = None, name: str = "measured") -> Any:
    """Any measured spectrum (a density, eigenvalues as a measure or an array), and any law over it."""
    measure = measured if isinstance(measured, AtomicMeasure) else AtomicMeasure.of(measured)
    theory = _law_of(theory)
    if theory is not None and not isinstance(theory, Measure):
        refuse(
            "theory must be a measure: a law of hesscope.rmt or an AtomicMeasure",
            type(theory).__name__,
            "Pass the model, its law, or AtomicMeasure.of(eigenvalues).",
        )
    outliers = measure.outliers if isinstance(measure, SpectralDensity) else np.zeros(0)
    return figure_of([spectrum_panel(name, measure, outliers, theory)])


def _law_of(theory: Any) -> Any:
    """The law itself; of a model its `law`, of a closed form or a prediction its `measure`."""
    for member in ("law", "measure"):
        if not isinstance(theory, Measure | type(None)) and hasattr(theory, member):
            found = getattr(theory, member)
            return found() if callable(found) and not isinstance(found, Measure) else found
    return theory


def _analysis(a: Analysis) -> Any:
    return figure_of([picture.panels[0] for picture in pictures_of(a) if picture.name != "blocks"])


def _eigenpairs(pairs: Eigenpairs) -> Any:
    figure, axis = new_figure()
    rank = np.arange(1, pairs.values.size + 1)
    axis.errorbar(rank, pairs.values, pairs.residuals, fmt="o", markersize=4, color=MEASURED, capsize=2)
    axis.set(xlabel="rank", ylabel="eigenvalue (bars: residual)")
    axis.xaxis.get_major_locator().set_params(integer=True)
    return figure


def _estimate(found: Estimate) -> Any:
    value = np.atleast_1d(np.asarray(found.value, dtype=np.float64)).ravel()
    stderr = np.broadcast_to(np.asarray(found.stderr, dtype=np.float64).ravel(), value.shape)
    figure, axis = new_figure()
    if value.size == 1:
        axis.errorbar([0], value, stderr, fmt="o", color=MEASURED, capsize=4)
        axis.set(xticks=[], ylabel=f"value ± standard error ({found.method})", ylim=(min(0.0, 1.2 * value[0]), None))
        return figure
    order = np.argsort(-np.abs(value))
    places = np.arange(1, value.size + 1)
    axis.plot(places, np.abs(value[order]), color=MEASURED, label="|entry|")
    if stderr.any():
        axis.plot(places, stderr[order], ".", color=ACCENT, markersize=2, label="its standard error")
        axis.legend(frameon=False, fontsize=8)
    axis.set(xlabel="rank", ylabel="size of the entries", yscale="log" if (value != 0).any() else "linear")
    return figure


def _errors(found: KroneckerErrors) -> Any:
    bars = (
        Bars("Frobenius error", found.names, found.frobenius, "measured", found.frobenius_stderr),
        Bars("spectral error", found.names, found.spectral, "accent"),
    )
    return figure_of(
        [Panel("Errors", "errors", bars, Axis(), Axis(f"relative error, {found.layer}", low=0.0, percent=True))]
    )


def _block_spectra(found: BlockSpectra) -> Any:
    figure, axis = new_figure(width=max(6.0, min(14.0, 0.3 * len(found.names))))
    for place, (nodes, weights) in enumerate(zip(found.nodes, found.weights, strict=True)):
        size = 4 + 40 * weights / weights.max()
        axis.scatter(np.full(nodes.size, place), nodes, s=size, color=MEASURED, alpha=0.4, linewidth=0)
    if len(found.names) <= 40:
        axis.set_xticks(
            range(len(found.names)), found.names, rotation=45, ha="right", rotation_mode="anchor", fontsize=7
        )
    largest = max(float(np.abs(nodes).max()) for nodes in found.nodes) or 1.0
    axis.set_yscale("symlog", linthresh=1e-4 * largest)
    axis.set(xlabel="block", ylabel="eigenvalues of the block")
    return figure


def _output_norms(found: OutputNorms) -> Any:
    figure, axis = new_figure()
    order = np.argsort(-found.diagonal)
    axis.plot(np.arange(1, order.size + 1), found.diagonal[order], color=MEASURED, label="a class's own block")
    axis.plot(
        np.arange(1, order.size + 1), found.off_diagonal[order], ".", color=ACCENT, label="its blocks with others (rms)"
    )
    axis.set(xlabel="class, by the norm of its block", ylabel="Frobenius norm", yscale="log")
    axis.legend(frameon=False, fontsize=8)
    return figure


def _outcome(outcome: Outcome) -> Any:
    from ..experiments import outcome_figures

    return next(iter(outcome_figures(outcome).values()), None) or _table(outcome)


def _factors(d: Any) -> Any:
    figure, axis = new_figure()
    columns = d.table()
    for name, ink in (("E[M]", MEASURED), ("E[xxᵀ]", INKS["theory"])):
        values = np.array(columns[name])
        axis.plot(columns["rank"], np.where(values > 0, values, np.nan), "o-", markersize=3, color=ink, label=name)
    axis.set(xlabel="rank", ylabel="eigenvalue of the factor", yscale="log", title=d.layer)
    axis.legend(frameon=False)
    return figure


def _table(result: Any) -> Any:
    if not isinstance(result, Tabular):
        refuse("a figure is drawn of a result", type(result).__name__, "Call .plot() on what a function returned.")
    columns = result.table()
    rows = list(zip(*columns.values(), strict=True))[:ROWS_SHOWN]
    figure, axis = new_figure(width=max(5.0, 2.4 * len(columns)), height=0.6 + 0.3 * len(rows))
    axis.axis("off")
    cells = [[cell if isinstance(cell, str) else short(cell, 40) for cell in row] for row in rows]
    if cells:
        made = axis.table(cells, colLabels=list(columns), loc="center", cellLoc="left")
        made.auto_set_font_size(False)
        made.set_fontsize(8)
        made.auto_set_column_width(list(range(len(columns))))
    axis.set_title(type(result).__name__, fontsize=10)
    return figure


_DRAWN: dict[type, Callable[..., Any]] = {
    Analysis: _analysis,
    SpectralDensity: spectrum_figure,
    Eigenpairs: _eigenpairs,
    Estimate: _estimate,
    BlockNorms: lambda found: figure_of([norms_panel(found)]),
    BlockSpectra: _block_spectra,
    HeatMap: heat_figure,
    OutputNorms: _output_norms,
    LayerTable: lambda found: figure_of(layer_table_picture(found).panels),
    KroneckerComparison: lambda found: figure_of(kronecker_picture([found]).panels),
    KroneckerErrors: _errors,
    TrainingHistory: lambda found: figure_of(history_picture(found).panels),
    Outcome: _outcome,
}
