"""A Problem where one is wanted."""

from __future__ import annotations

from typing import Any

from ..errors import refuse
from .problem import Problem


def need_problem(given: Any) -> Problem:
    """`given`, refused where it is no Problem."""
    if not isinstance(given, Problem):
        refuse("this needs a Problem", type(given).__name__, "Make one with hs.Problem.of(model, loss, data).")
    return given
