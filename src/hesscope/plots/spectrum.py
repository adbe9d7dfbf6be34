"""Pictures of spectra: densities over a signed-log and a linear axis, and how many eigenvalues exceed a size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..measure import Array, AtomicMeasure, Measure
from ..results.analysis import Analysis
from ..results.spectra import SpectralDensity
from ..rmt import Fit
from .picture import Axis, Band, Curve, Panel, Picture
from .spectrum_curves import Sampled, counts, density, signed_log, signed_log_density, ticks, unit_of

Named = Sequence[tuple[str, AtomicMeasure]]
INKS = ("measured", "accent")
PREDICTED = "theory: E[M] ⊗ E[xxᵀ] by layer"
HOVER = "λ = {value:.4g}\ndensity {y:.3g}"


def spectrum_picture(a: Analysis) -> Picture:
    """H and G, eigenvalues resolved one by one, and what theory predicts."""
    named = _named(a)
    panels = (_signed_log(a, named), _linear(a, named), _counts(a, named))
    return Picture("spectrum", "Spectrum", panels, 460)


def density_panel(named: Named, more: Sequence[Curve] = (), floor: float | None = None) -> Panel:
    """Densities per unit of asinh(λ/unit), on a logarithmic axis."""
    unit = unit_of(named[0][1])
    curves, bands = [], []
    for (name, measure), ink in zip(named, INKS, strict=False):
        curve = signed_log_density(measure, unit)
        bands += _band(curve, signed_log(curve.x, unit), ink)
        curves.append(_density(name, signed_log(curve.x, unit), curve.y, ink, curve.x))
    left, right = (end(float(curve.values[at]) for curve in curves) for end, at in ((min, 0), (max, -1)))  # type: ignore[index]
    bottom = _floor(named[0][1]) if floor is None else floor
    x = Axis("eigenvalue λ (signed logarithm)", ticks=ticks(unit, min(left, 0.0), max(right, 0.0)))
    axis = _density_axis((*curves, *more), bottom, "density per unit of the axis")
    return Panel("Signed log", "spectrum", (*bands, *curves, *more), x, axis)


def _band(curve: Sampled, x: Array, ink: str) -> list[Band]:
    """Two standard errors on either side, where the density is an estimate."""
    if curve.stderr is None or not (curve.stderr > 0).any():
        return []
    low = np.maximum(curve.y - 2 * curve.stderr, 1e-14)  # the axis is logarithmic
    return [Band(x, low, np.maximum(curve.y + 2 * curve.stderr, 1e-14), ink)]


def spectrum_panel(name: str, measure: AtomicMeasure, largest: Array, theory: Measure | None = None) -> Panel:
    """One density with its large eigenvalues as marks along the axis, and a law over it."""
    unit, floor = unit_of(measure), _floor(measure)
    more = [] if theory is None else [_law_over(theory, unit)]
    if largest.size:
        texts = tuple(f"λ_{rank} = {value:.5g}" for rank, value in enumerate(largest, 1))
        height = np.full(largest.size, 2 * floor)
        more.append(_marks("resolved one by one", signed_log(largest, unit), height, "highlight", "diamond", texts))
    return density_panel([(name, measure)], more, floor)


def _law_over(theory: Measure, unit: float) -> Curve:
    """Any law per unit of asinh(λ/unit): by its quantiles, which every law has, with atoms and all."""
    levels = (np.arange(4000) + 0.5) / 4000
    curve = signed_log_density(AtomicMeasure.of(theory.quantile(levels)), unit)
    return _density("theory", signed_log(curve.x, unit), curve.y, "theory", curve.x, "dashed")


def _floor(measure: AtomicMeasure) -> float:
    """Where the axis begins: a tenth of what one eigenvalue adds to the density at its own place."""
    return 0.05 / (measure.size if isinstance(measure, SpectralDensity) else max(1, measure.nodes.size))


def _named(a: Analysis) -> list[tuple[str, AtomicMeasure]]:
    found: list[tuple[str, AtomicMeasure]] = [("Hessian H", a.density)]
    return [*found, ("Gauss-Newton G", a.gauss_newton_density)] if a.gauss_newton_density is not None else found


def _signed_log(a: Analysis, named: Named) -> Panel:
    unit = unit_of(named[0][1])
    floor = 0.05 / a.size
    more = []
    if a.prediction is not None:
        curve = signed_log_density(a.prediction.measure(), unit)
        more.append(_density(PREDICTED, signed_log(curve.x, unit), curve.y, "theory", curve.x))
    if a.fit is not None:
        x, y = _law(a.fit)
        more.append(_density(_law_name(a.fit), signed_log(x, unit), y * np.sqrt(x**2 + unit**2), "theory", x, "dashed"))
    rugs = _rugs(a, lambda values: signed_log(values, unit), lambda rank: np.full(rank.size, 2 * floor))
    return density_panel(named, (*more, *rugs), floor)


def _linear(a: Analysis, named: Named) -> Panel:
    low = min(float(measure.nodes[0]) for _, measure in named)
    high = max(float(measure.nodes[-1]) for _, measure in named)
    span = high - low or 1.0
    left, right = low - 0.04 * span, high + 0.04 * span
    curves: list[Curve] = []
    bands: list[Band] = []
    for (name, measure), ink in zip(named, INKS, strict=False):
        curve = density(measure, left, right)
        bands += _band(curve, curve.x, ink)
        curves.append(_density(name, curve.x, curve.y, ink, curve.x))
    if a.prediction is not None:
        curve = density(a.prediction.measure(), left, right)
        curves.append(_density(PREDICTED, curve.x, curve.y, "theory", curve.x))
    if a.fit is not None:
        x, y = _law(a.fit)
        curves.append(_density(_law_name(a.fit), x, y, "theory", x, "dashed"))
    floor = 0.05 / a.size / span
    marks = (*curves, *_rugs(a, np.asarray, lambda rank: np.full(rank.size, 2 * floor)))
    y_axis = _density_axis(marks, floor, "density (logarithmic)")
    return Panel("Linear", "spectrum-linear", (*bands, *marks), Axis("eigenvalue λ"), y_axis)


def _counts(a: Analysis, named: Named) -> Panel:
    curves = []
    hover = "{y:.1f} eigenvalues beyond {x:.3g}"
    floor = max(a.noise, 1e-6 * abs(a.sharpness))  # below, an eigenvalue cannot be told from zero
    sides = ((1, "λ > t"), (-1, "λ < −t"))
    for (name, measure), ink in zip(named, INKS, strict=False):
        for sign, side in sides if measure is a.density else sides[:1]:  # G has no negative eigenvalues
            curve = counts(measure, a.size, sign, floor)
            if curve.x.size:
                line = "steps" if sign > 0 else "dashed steps"
                curves.append(Curve(f"{name}, {side}", curve.x, curve.y, ink, line, hover=hover))  # type: ignore[arg-type]
    if a.prediction is not None:
        curve = counts(a.prediction.measure(), a.size, 1, floor)
        curves.append(Curve(PREDICTED, curve.x, curve.y, "theory", "steps", hover=hover))
    x, y = Axis("size t", "log"), Axis("eigenvalues beyond t", "log", low=0.7, high=2.0 * a.size)
    return Panel("Counts", "counts", (*curves, *_rugs(a, np.asarray, lambda rank: rank)), x, y)


def _rugs(a: Analysis, place: Callable[[Array], Array], height: Callable[[Array], Array]) -> list[Curve]:
    """Measured and predicted large eigenvalues, at a height that may depend on their rank."""
    values, parts = a.largest.values, a.gauss_newton_parts
    texts = []
    for k, (value, residual) in enumerate(zip(values, a.largest.residuals, strict=True)):
        share = "" if parts is None else f"\nGauss-Newton {np.asarray(parts.value)[k] / value:.1%}"
        texts.append(f"λ_{k + 1} = {value:.5g} ± {residual:.1g}{share}")
    rank = np.arange(1.0, values.size + 1)
    made = [_marks("resolved one by one", place(values), height(rank), "highlight", "diamond", tuple(texts))]
    if a.prediction is not None and (a.prediction.largest > 0).any():
        guessed = a.prediction.largest[a.prediction.largest > 0]
        texts = [f"λ_{k} predicted: {value:.5g}" for k, value in enumerate(guessed, 1)]
        rank = np.arange(1.0, guessed.size + 1)
        raised = height(rank) * (2.2 if height(rank)[0] < 1 else 1.0)  # along an axis, beside the measured ones
        made.append(_marks("predicted outliers", place(guessed), raised, "theory", "open diamond", tuple(texts)))
    return made


def _density(name: str, x: Array, y: Array, ink: str, values: Array, line: str = "solid") -> Curve:
    seen = np.where(np.asarray(y) > 1e-14, y, np.nan)
    return Curve(name, x, seen, ink, line, hover=HOVER, values=values)  # type: ignore[arg-type]


def _marks(name: str, x: Array, y: Array, ink: str, marker: str, texts: tuple[str, ...]) -> Curve:
    return Curve(name, x, y, ink, "none", marker, "{text}", texts=texts)  # type: ignore[arg-type]


def _density_axis(marks: Sequence[Curve], floor: float, label: str) -> Axis:
    ceiling = max(float(np.nanmax(mark.y)) for mark in marks)
    return Axis(label, "log", low=floor, high=2 * max(ceiling, 10 * floor))


def _law(fit: Fit, points: int = 400) -> tuple[Array, Array]:
    low, high = (float(q) for q in fit.law.quantile([1e-4, 1 - 1e-4]))
    x = np.linspace(low, high, points)
    return x, np.asarray(fit.law.density(x))


def _law_name(fit: Fit) -> str:
    return f"closest law: {fit.family.replace('_', '-')} (distance {fit.kolmogorov:.2f})"
