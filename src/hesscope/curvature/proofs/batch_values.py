"""One pass over the data without derivatives: what every batch gives, or what is wrong with it."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from ...errors import HesscopeError, refuse
from ..engines.memory import is_out_of_memory
from .determinism import explain_forward_error

if TYPE_CHECKING:
    from ..problem import Problem


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
