"""Every result carries what the self-check said of its operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

from ..operators import LinearOperator
from .validation import innermost

_Algorithm = TypeVar("_Algorithm", bound=Callable[..., Any])


def with_check(algorithm: _Algorithm) -> _Algorithm:
    """The same algorithm, whose result says in `.check` what hs.check found ("unchecked" where it has not run)."""

    @wraps(algorithm)
    def run(op: LinearOperator, *args: Any, **kwargs: Any) -> Any:
        return replace(algorithm(op, *args, **kwargs), check=str(getattr(innermost(op), "verdict", "unchecked")))

    return cast(_Algorithm, run)
