"""Central differences of a gradient: slow, approximate, and independent of every second-derivative formula."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

STEPS = (1e-3, 1e-4, 1e-5, 1e-6)


def best_agreement(gradient: Callable[[float], Tensor], product: Tensor, scale: float) -> float:
    """min_h |(g(h) - g(-h))/2h - H v| / |H v| over a ladder of steps, relative to the larger of the two sides.

    Large steps err by curvature and kinks, small ones by rounding; a wrong product agrees with none of them.
    """
    best = float("inf")
    for relative in STEPS:
        step = relative * max(scale, 1e-3)
        difference = (gradient(step) - gradient(-step)) / (2 * step)
        size = max(float(product.norm()), float(difference.norm()))
        gap = float((difference - product).norm())
        best = min(best, gap / size if size > 0 else 0.0)
    return best
