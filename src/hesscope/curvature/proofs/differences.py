"""Central differences: slow, approximate, and independent of every derivative formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf, ulp

import torch
from torch import Tensor

# Small enough for most networks with kinks first, then smaller and larger ones in turn: kinks against rounding.
STEPS = (1e-7, 1e-8, 1e-6, 1e-5, 1e-9, 1e-4, 1e-3)
ENOUGH = 1e-6  # no smaller gap is looked for
_ROUNDING = 64  # units in the last place that a function may be off by
_NEGLIGIBLE = 5e7  # units in the last place of a function that a derivative may be off by: 1e-8 in float64
_SMALL = 1e-3  # parts that are smaller than this share of the whole are compared on that scale


def best_gap(
    function: Callable[[float], Tensor],
    derivative: Tensor,
    parts: Iterable[slice] = (slice(None),),
    steps: tuple[float, ...] = STEPS,
    rounding: float = ulp(1.0),
    size: float = 0.0,
) -> float:
    """min_h max_parts |(F(h) - F(-h))/2h - F'| / |F'|, for F' the derivative of `function` at 0.

    Large steps err by curvature and kinks, small ones by rounding; a wrong derivative agrees at none of them. Where F
    hardly changes there is nothing to compare but rounding, which is why a little of F itself (`rounding`) is allowed.
    Entries should come in units in which all parts are alike. Gaps are relative to `size` where the derivative is less.
    """
    parts, best = list(parts), inf
    if not bool(torch.isfinite(derivative).all()):
        return inf
    for step in steps:
        above, below = function(step), function(-step)
        above, below = above.detach(), below.detach()
        difference = (above - below) / (2 * step)
        noise = min(_ROUNDING / step, _NEGLIGIBLE) * rounding
        whole = max(float(derivative.norm()), float(difference.norm()), size)
        worst = 0.0 if bool(torch.isfinite(difference).all()) else inf
        for part in parts:
            scale = max(float(derivative[part].norm()), float(difference[part].norm()), size, _SMALL * whole)
            allowed = noise * max(float(above[part].norm()), float(below[part].norm()))
            gap = float((difference[part] - derivative[part]).norm())
            if gap > 0:
                worst = max(worst, min(gap / scale, ENOUGH) if gap <= allowed else gap / scale)
        best = min(best, worst)
        if best <= ENOUGH:
            break
    return best
