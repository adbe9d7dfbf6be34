"""How noisy a function is: from differences of high order along a short line, which leave nothing of its smooth part."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, sqrt

import torch
from torch import Tensor

_POINTS = 9
_ORDERS = (3, 4, 5, 6)


def spread_on_a_line(function: Callable[[float], Tensor]) -> float:
    """The standard deviation of the noise of a vector function, as a length: √Σ_i Var F_i.

    Differences of order k of independent noise of variance σ² have variance σ² (2k)!/(k!)²; those of a smooth function
    on a short line vanish. The largest of four orders is taken. Reference: Moré and Wild (2011), "Estimating
    computational noise".
    """
    table = torch.stack([function(float(place)) for place in range(-(_POINTS // 2), _POINTS // 2 + 1)])
    found = []
    for order in range(1, max(_ORDERS) + 1):
        table = table[1:] - table[:-1]
        if order in _ORDERS:
            variance = float(table.square().sum(1).mean()) * factorial(order) ** 2 / factorial(2 * order)
            found.append(sqrt(variance))
    return max(found)


def relative_spacing(dtype: torch.dtype) -> float:
    """How far apart the points of a line are, relative to the parameters: far above their rounding, far below all else."""
    return float(torch.finfo(dtype).eps ** 0.5)
