"""Every result carries what the self-check said of its operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

from ..operators import Matrix, as_operator
from ..operators.autocast import own_types
from ..operators.finite import need_finite
from ..operators.tensors import tensor_of
from ..results.spectra import Estimate
from .product_errors import with_product_error

_Algorithm = TypeVar("_Algorithm", bound=Callable[..., Any])


def with_check(algorithm: _Algorithm) -> _Algorithm:
    """The same algorithm, whose result says in `.check` what was proven of its operator."""

    @wraps(algorithm)
    def run(op: Matrix, *args: Any, **kwargs: Any) -> Any:
        op = as_operator(op)
        with own_types():
            found = algorithm(op, *args, **kwargs)
            if isinstance(found, Estimate):
                need_finite(tensor_of(found.value), f"what is measured of {op!r}")
            return replace(with_product_error(found, op, args, kwargs), check=op.verified)

    return cast(_Algorithm, run)
