"""The real (δ, e) at a point outside the support, by inverting the curve of its gap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq

from ...errors import refuse
from .outside import Gap
from .population import Complex, Real


def real_delta(gaps: Sequence[Gap], x: Real) -> tuple[Complex, Complex]:
    """(δ, e) at each real x of some gap: x increases along the gap's curve, so a bracketing root finder suffices."""
    delta, e = np.empty(x.shape, np.complex128), np.empty(x.shape, np.complex128)
    for i, point in enumerate(x):
        gap = next((gap for gap in gaps if gap.left <= point <= gap.right), None)
        if gap is None:
            refuse("a real point must lie outside the support", f"{point}", "Ask for a complex z.")
        delta[i], e[i] = gap.curve.delta_e(coordinate(gap, float(point)))
    return delta, e


def coordinate(gap: Gap, x: float) -> float:
    """The curve coordinate u with x(u) = x."""

    def miss(u: float) -> float:
        # Compare on a bounded scale: a gap may reach infinity.
        value = float(gap.curve.trace(np.array([u]))[0][0])
        return float(np.arctan(value) - np.arctan(x)) if np.isfinite(value) else float(np.copysign(2.0, value))

    ends = []
    for u, value in ((gap.start, gap.left), (gap.stop, gap.right)):
        if value == x:
            return u
        ends.append(u if np.isfinite(value) else u + 1e-13 * (gap.start + gap.stop - 2 * u))
    return float(brentq(miss, ends[0], ends[1], xtol=1e-16, rtol=1e-15))
