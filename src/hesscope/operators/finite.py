"""Whether every number of a tensor is finite, at the price of one sum."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import refuse


def all_finite(values: Tensor) -> bool:
    """Infinities and NaN survive a sum; only where the sum itself overflows must the entries be looked at."""
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def need_finite(values: Tensor, what: str, anywhere: Callable[[bool], bool] = bool) -> Tensor:
    """The values themselves; a loss may be finite where its derivatives are not, as a saturated unit of an infinite input.

    Where each process has a part of them, `anywhere` tells whether something holds for some part: they all refuse or none.
    """
    if anywhere(not all_finite(values)):
        refuse(
            f"{what} must be finite",
            "NaN or infinity",
            "Look for them in the data, and for what has no derivative here: roots, norms and logarithms of zero, and "
            "logcumsumexp in front of units that are off (torch divides by the gradient that arrives there).",
        )
    return values
