"""Central differences: slow, approximate, and independent of every derivative formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import hypot, inf, isfinite, ulp

import torch
from torch import Tensor

# Small enough for most networks with kinks first, then smaller and larger ones in turn: kinks against rounding.
STEPS = (1e-7, 1e-8, 1e-6, 1e-5, 1e-9, 1e-4, 1e-3)
ENOUGH = 1e-6  # no smaller gap is looked for
_ROUNDING = 64  # units in the last place that a function may be off by
_NEGLIGIBLE = 5e7  # units in the last place of a function that a derivative may be off by: 1e-8 in float64
_SMALL = 1e-3  # parts that are smaller than this share of the whole are compared on that scale

Parts = Sequence[Tensor]


def best_gap(
    function: Callable[[float], Parts],
    derivative: Parts,
    value: Parts | None = None,
    scales: Sequence[float] | None = None,
    steps: tuple[float, ...] = STEPS,
    rounding: float = ulp(1.0),
    size: float = 0.0,
) -> float:
    """min_h max_parts |(F(h) - F(-h))/2h - F'| / |F'|, for F' the derivative of `function` at 0.

    Large steps err by curvature and kinks, small ones by rounding; a wrong derivative agrees at none of them. Where F
    hardly changes there is nothing to compare but rounding, which is why a little of F itself (`rounding`) is allowed.
    `scales` are the units in which all parts are alike. Gaps are relative to `size` where the derivative is less. With
    `value`, F(0) as found in another way, the mean of F(h) and F(-h) must be that, too. What `function` returns is changed.
    """
    units, best = scales or (1.0,) * len(derivative), inf
    own, here = _norms(derivative, units), None if value is None else _norms(value, units)
    if not isfinite(hypot(*own)):
        return inf
    for step in steps:
        above, below = function(step), function(-step)
        lengths = _norms(above, units) if here is None else here
        changes = [torch.sub(a, b, out=b) for a, b in zip(above, below, strict=True)]
        means = [] if value is None else [a.sub_(b, alpha=0.5) for a, b in zip(above, changes, strict=True)]
        sizes = [norm / (2 * step) for norm in _norms(changes, units)]
        gaps = [
            norm / (2 * step)
            for norm in _norms([c.sub_(d, alpha=2 * step) for c, d in zip(changes, derivative, strict=True)], units)
        ]
        whole = max(hypot(*own), hypot(*sizes), size)
        allowed = min(_ROUNDING / step, _NEGLIGIBLE) * rounding
        worst = 0.0 if isfinite(whole) else inf
        for gap, mine, theirs, length in zip(gaps, own, sizes, lengths, strict=True):
            relative = gap / max(mine, theirs, size, _SMALL * whole) if gap > 0 else 0.0
            worst = max(worst, min(relative, ENOUGH) if gap <= allowed * length else relative)
        if value is not None and here is not None:
            apart = _norms([mean.sub_(f) for mean, f in zip(means, value, strict=True)], units)
            # A gradient that vanishes is as large as it becomes within the step.
            floor = max(_SMALL * hypot(*here), step * whole)
            worst = max(
                [
                    worst,
                    *(
                        gap / max(f, floor) if f or floor else inf
                        for gap, f in zip(apart, here, strict=True)
                        if gap > 0
                    ),
                ]
            )
        best = min(best, worst)
        if best <= ENOUGH:
            break
    return best


def _norms(parts: Parts, units: Sequence[float]) -> list[float]:
    """The norms of all parts in their units."""
    found = torch.stack([torch.linalg.vector_norm(part.detach()) for part in parts]).tolist()
    return [unit * norm for unit, norm in zip(units, found, strict=True)]
