"""Spikes along a line of models: theory and averaged simulation of eigengap and alignment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...plots.style import MEASURED, THEORY
from ...rmt import GLM
from ...rng import Rng
from ._runs import SHRINK, extrapolated, repeated

QUANTITIES = ("location", "gap", "alignment")


def theory(family: Callable[[float], GLM], strengths: Sequence[float], side: str, vector: str) -> dict[str, Any]:
    """Location, eigengap and alignment of the spike on `side` (gap and alignment 0 where there is none)."""
    rows = []
    for strength in strengths:
        model = family(strength)
        edge = model.law().edges[0 if side == "left" else -1]
        spikes = [s for s in model.spikes() if s.side == side]
        rows.append(
            (spikes[0].location, spikes[0].distance, getattr(spikes[0].alignment, vector), edge)
            if spikes
            else (edge, 0.0, 0.0, edge)
        )
    location, gap, alignment, edges = np.array(rows).T
    found = {"strength": np.asarray(strengths, dtype=float), "location": location, "gap": gap}
    return {**found, "alignment": alignment, "edge": edges}


def simulated(
    family: Callable[[float], GLM], strengths: Sequence[float], side: str, vector: str, p: int, runs: int, rng: Rng
) -> dict[str, Any]:
    """Every run at p and at p/2: extreme eigenvalue, its distance to the law's support, its alignment.

    The distance to the support is what the paper's middle panels draw; the distance to the next eigenvalue would add
    that eigenvalue's own distance from the edge, which vanishes only as p^(-2/3).
    """
    found: dict[str, list[Any]] = {"full": [], "half": []}
    for strength in strengths:
        model = family(strength)
        edge = model.law().edges[0 if side == "left" else -1]
        for key, size in (("full", p), ("half", p // SHRINK)):
            rows = [_row(one, edge, side, vector) for one in repeated(model, size, runs, rng.child(strength, size))]
            found[key].append(rows)
    full, half = np.array(found["full"]), np.array(found["half"])  # (strength, run, quantity)
    means = dict(zip(QUANTITIES, full.mean(1).T, strict=True))
    errors = full.std(1, ddof=1) / np.sqrt(runs)
    return {"strength": np.asarray(strengths, dtype=float), **means, "errors": errors, "full": full, "half": half}


def _row(one: Any, edge: float, side: str, vector: str) -> tuple[float, float, float]:
    index, sign = (0, -1.0) if side == "left" else (-1, 1.0)
    value = float(one.eigenvalues[index])
    return value, max(0.0, sign * (value - edge)), float(getattr(one.alignment(index), vector))


def deviation(points: dict[str, Any], exact: dict[str, Any], quantity: str, where: Any) -> float:
    """The largest distance from theory in standard errors, over the chosen strengths."""
    column = QUANTITIES.index(quantity)
    scores = [
        extrapolated(points["full"][k, :, column], points["half"][k, :, column], float(exact[quantity][k]))
        for k in np.flatnonzero(where)
    ]
    return max(scores)


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
