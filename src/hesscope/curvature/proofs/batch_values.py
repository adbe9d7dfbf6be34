"""One pass over the data without derivatives: what every batch gives, or what is wrong with it."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import torch

from ...errors import HesscopeError, InputError, refuse
from ..cutting import refuse_uneven_batches
from ..engines.memory import is_out_of_memory
from ..gradient_mode import differentiable
from .determinism import explain_forward_error
from .independence import rounding_of

if TYPE_CHECKING:
    from ..problem import Problem


class LossChanged(InputError):
    """A batch has another loss than before."""


def values_of_batches(problem: Problem, first: tuple[float, float] | None) -> tuple[tuple[float, float], ...]:
    """(sum, count) of each batch of this process; `first` is that of the first one, where it is known."""
    found = []
    for index, batch in enumerate(problem.batches):
        value, count = first if first is not None and index == 0 else _value(problem, batch, index)
        if not isfinite(value):
            refuse(
                "the loss must be finite",
                f"{value} on batch {index}",
                "Look at that batch and at the parameters for nan or inf, or lower the learning rate.",
            )
        found.append((value, count))
    return tuple(found)


def _value(problem: Problem, batch: Any, index: int) -> tuple[float, float]:
    try:
        return problem.value_of(batch)
    except Exception as error:
        if isinstance(error, HesscopeError) or is_out_of_memory(error):
            raise
        raise explain_forward_error(error, batch, f"batch {index}") from error


@differentiable()
def total_of_batches(problem: Problem) -> tuple[float, float]:
    """(Σ sum, Σ count) over all data and all processes; refuses data that counts for nothing."""
    each = torch.tensor(problem.batch_values, dtype=torch.float64, device="cpu").reshape(-1, 2)
    total = problem.all_sum(torch.cat([each, torch.ones_like(each), each**2], 1).sum(0))
    refuse_uneven_batches(problem, total[[3, 1, 5]])
    if not float(total[1]) > 0:
        refuse("the data must count for something", "a total weight of 0", "Are all targets ignored or of weight 0?")
    return float(total[0]), float(total[1])


def confirm_value(problem: Problem, index: int, value: float, count: int) -> None:
    """Refuse a loss of `count` batches from `index` on that is not the one recorded: it is not a fixed function."""
    recorded = problem.batch_values[index : index + count]
    size = sum(abs(v) for v, _ in recorded)
    rounding = max(rounding_of(dtype) for dtype in problem.types)
    if abs(sum(v for v, _ in recorded) - value) > rounding * max(size, abs(value)):
        refuse(
            "the loss must be a fixed function of the parameters",
            f"{sum(v for v, _ in recorded):.8g} and {value:.8g} for batch {index} on two calls",
            "Switch off dropout, sampling and data augmentation, or pass Problem.of(..., freeze=True); data and buffers must "
            "stay as they were.",
            LossChanged,
        )
