"""Spectra: the density over a signed-log axis, and how many eigenvalues exceed a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..measure import Array, AtomicMeasure
from .style import ACCENT, MEASURED, MUTED, THEORY, new_figure
from .views import counts, signed_log, signed_log_density, ticks, unit_of

INKS = (MEASURED, ACCENT)


def spectrum_figure(
    spectra: Sequence[tuple[str, AtomicMeasure]],
    eigenvalues: Array | None = None,
    theory: AtomicMeasure | None = None,
) -> Any:
    """Densities per unit of asinh(λ/unit), resolved eigenvalues as ticks, a predicted spectrum in orange."""
    figure, axis = new_figure(width=8.0, height=4.0)
    unit = unit_of(spectra[0][1])
    low, high = 0.0, 0.0
    for (name, measure), ink in zip(spectra, INKS, strict=False):
        curve = signed_log_density(measure, unit)
        u = signed_log(curve.x, unit)
        axis.plot(u, np.maximum(curve.y, 1e-12), color=ink, linewidth=1.6, label=name)
        low, high = min(low, float(curve.x[0])), max(high, float(curve.x[-1]))
    if theory is not None:
        curve = signed_log_density(theory, unit)
        label = "theory: E[M] ⊗ E[xxᵀ] by layer"
        axis.plot(signed_log(curve.x, unit), np.maximum(curve.y, 1e-12), color=THEORY, linewidth=1.4, label=label)
    floor = 0.1 / max(1, spectra[0][1].nodes.size) ** 2
    if eigenvalues is not None:
        axis.plot(
            signed_log(np.asarray(eigenvalues), unit),
            np.full(len(eigenvalues), 2 * floor),
            "|",
            color=MEASURED,
            markersize=11,
            label="resolved one by one",
        )
    axis.set_yscale("log")
    axis.set_ylim(bottom=floor)
    places, labels = ticks(unit, low, high)
    axis.set_xticks(places, labels)
    axis.set_xlabel("eigenvalue λ (signed logarithm)")
    axis.set_ylabel("density per unit of the axis")
    axis.axvline(0.0, color=MUTED, linewidth=0.8)
    axis.legend(frameon=False, fontsize=9)
    return figure


def counts_figure(spectra: Sequence[tuple[str, AtomicMeasure]], size: int, eigenvalues: Array | None = None) -> Any:
    """#{λ > t} and #{λ < −t} over t on two logarithmic axes."""
    figure, axis = new_figure(width=8.0, height=4.0)
    for (name, measure), ink in zip(spectra, INKS, strict=False):
        for sign, style in ((1, "-"), (-1, "--")):
            curve = counts(measure, size, sign)
            if curve.x.size:
                side = "λ > t" if sign > 0 else "λ < −t"
                axis.step(curve.x, curve.y, where="post", color=ink, linestyle=style, label=f"{name}, {side}")
    if eigenvalues is not None:
        rank = np.arange(1, len(eigenvalues) + 1)
        axis.plot(eigenvalues, rank, "o", color=MEASURED, markersize=3.5, label="resolved one by one")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.7)
    axis.set_xlabel("size t")
    axis.set_ylabel("eigenvalues beyond t")
    axis.legend(frameon=False, fontsize=9)
    return figure
