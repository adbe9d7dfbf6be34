"""Central differences: slow, approximate, and independent of every derivative formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf, ulp

from torch import Tensor

from ...operators.finite import all_finite

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
    if not all_finite(derivative):
        return inf
    lengths = [float(derivative[part].norm()) for part in parts]
    whole = float(derivative.norm())
    for step in steps:
        above = function(step).detach()
        below = function(-step).detach()
        noise = min(_ROUNDING / step, _NEGLIGIBLE) * rounding
        allowed = [noise * max(float(above[part].norm()), float(below[part].norm())) for part in parts]
        difference = above.sub_(below).div_(2 * step)
        del above, below  # vectors as long as the network has parameters
        total = max(whole, float(difference.norm()), size)
        worst = 0.0 if all_finite(difference) else inf
        for part, length, least in zip(parts, lengths, allowed, strict=True):
            scale = max(length, float(difference[part].norm()), size, _SMALL * total)
            gap = float(difference[part].sub_(derivative[part]).norm())
            if gap > 0:
                worst = max(worst, min(gap / scale, ENOUGH) if gap <= least else gap / scale)
        best = min(best, worst)
        if best <= ENOUGH:
            break
    return best
