"""Where spikes leave and re-enter the bulk as one vector of the model grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq

from ..separable.population import Real

if TYPE_CHECKING:
    from .model import GLM


@dataclass(frozen=True)
class Transition:
    """At this norm of the vector, a spike on this side leaves the bulk (`appears`) or merges back into it."""

    norm: float
    side: str
    appears: bool


def transitions(family: Callable[[float], GLM], norms: Real) -> list[Transition]:
    """All transitions on both sides between neighbouring `norms`, each bracketed there and refined to rounding.

    A spike crosses the edge exactly when an eigenvalue of the signature at the edge changes sign, so the threshold is
    a root in the norm alone; no spike has to be followed into its square-root approach to the edge.
    """
    edges = [_edges(family(float(norm))) for norm in norms]
    found = []
    for i, side in ((i, side) for i in range(len(norms) - 1) for side in ("left", "right")):
        low, high = edges[i].get(side), edges[i + 1].get(side)
        if low is None or high is None or low.size != high.size:
            continue
        for j in np.flatnonzero((low < 0) != (high < 0)):

            def value(norm: float, j: int = int(j), side: str = side) -> float:
                return float(_edges(family(norm))[side][j])

            root = float(brentq(value, norms[i], norms[i + 1], xtol=1e-12, rtol=1e-12))
            # Far from the bulk the signature is balanced: an eigenvalue of the wrong sign at the edge is a spike.
            appears = (low[j] < 0) == (j < low.size // 2)
            found.append(Transition(root, side, bool(appears)))
    return sorted(found, key=lambda transition: transition.norm)


def _edges(model: GLM) -> dict[str, Real]:
    """The signature at the outer edges that exist."""
    out = {}
    for gap in model.law().gaps:
        if np.isinf(gap.left) or np.isinf(gap.right):
            side = "left" if np.isinf(gap.left) else "right"
            out[side] = model.spike_equation.edge_signature(gap, side)
    return out
