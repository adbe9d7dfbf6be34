"""Spikes along a line of models: theory and averaged simulation of eigengap and alignment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...plots.style import MEASURED, THEORY
from ...rmt import GLM
from ...rng import Rng
from ._runs import repeated


def theory(family: Callable[[float], GLM], strengths: Sequence[float], side: str, vector: str) -> dict[str, Any]:
    """Location, eigengap and alignment of the spike on `side` (gap and alignment 0 where there is none)."""
    rows = []
    for strength in strengths:
        model = family(strength)
        edge = model.law().edges[0 if side == "left" else -1]
        spikes = [s for s in model.spikes() if s.side == side]
        rows.append(
            (spikes[0].location, spikes[0].distance, getattr(spikes[0].alignment, vector))
            if spikes
            else (edge, 0.0, 0.0)
        )
    location, gap, alignment = np.array(rows).T
    return {"strength": np.asarray(strengths, dtype=float), "location": location, "gap": gap, "alignment": alignment}


def simulated(
    family: Callable[[float], GLM], strengths: Sequence[float], side: str, vector: str, p: int, runs: int, rng: Rng
) -> dict[str, Any]:
    """Averages and standard errors over runs of the extreme eigenvalue, its gap to the next, and its alignment."""
    index, step = (0, 1) if side == "left" else (-1, -1)
    means, errors = [], []
    for strength in strengths:
        rows = []
        for one in repeated(family(strength), p, runs, rng.child(strength)):
            values = one.eigenvalues
            rows.append(
                (values[index], abs(values[index] - values[index + step]), getattr(one.alignment(index), vector))
            )
        means.append(np.mean(rows, axis=0))
        errors.append(np.std(rows, axis=0, ddof=1) / np.sqrt(runs))
    location, gap, alignment = np.array(means).T
    return {
        "strength": np.asarray(strengths, dtype=float),
        "location": location,
        "gap": gap,
        "alignment": alignment,
        "errors": np.array(errors),
    }


def draw_sweep(axes: Sequence[Any], curve: dict[str, Any], points: dict[str, Any], label: str, vector: str) -> None:
    """Eigengap and alignment against the strength, theory as lines, simulation with its standard errors."""
    for axis, key, column in zip(axes, ("gap", "alignment"), (1, 2), strict=True):
        axis.plot(curve["strength"], curve[key], color=THEORY, label="theory")
        axis.errorbar(
            points["strength"], points[key], yerr=np.asarray(points["errors"])[:, column],
            fmt="o", ms=4, color=MEASURED, label="simulation",
        )  # fmt: skip
        axis.set(xlabel=label, title="eigengap" if key == "gap" else f"alignment with {vector}")
        axis.set_ylabel("distance to the bulk" if key == "gap" else "squared cosine")
        axis.legend(fontsize=8, frameon=False)
