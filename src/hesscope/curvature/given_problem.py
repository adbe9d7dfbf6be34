"""A Problem where one is wanted."""

from __future__ import annotations

from typing import Any

from ..errors import refuse
from .problem import Problem
from .spread import whole_tensors


def need_problem(given: Any, in_parts: bool = False) -> Problem:
    """`given`, refused where it is no Problem; with whole parameters, unless parts of them do."""
    if not isinstance(given, Problem):
        refuse("this needs a Problem", type(given).__name__, "Make one with hs.Problem.of(model, loss, data).")
    if not in_parts:
        whole_tensors(given)  # now, when all processes are here
    return given


def need_one_process(given: Any, what: str) -> Problem:
    """A Problem whose data is all here, for what is not summed over processes."""
    problem = need_problem(given)
    if problem.distributed:
        refuse(f"{what} needs all data in one process", "a distributed problem", "Make it without distributed.")
    return problem
