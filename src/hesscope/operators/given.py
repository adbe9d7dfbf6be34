"""What users hand over where a matrix is wanted: an operator, or something that has one."""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from ..errors import refuse
from .base import LinearOperator
from .functions import from_scipy, is_scipy


@runtime_checkable
class HasOperator(Protocol):
    """Something that stands for one matrix, as a problem does for its Hessian."""

    def as_operator(self) -> LinearOperator: ...


Matrix = LinearOperator | HasOperator
MatrixName = Literal["hessian", "gauss_newton"]  # of a problem, where both would do


def as_operator(given: Matrix) -> LinearOperator:
    """The operator itself, or a problem's Hessian; what is neither is refused with what to write instead."""
    if isinstance(given, LinearOperator):
        return given
    if isinstance(given, HasOperator) and not isinstance(given, type):
        return given.as_operator()
    if is_scipy(given):
        return from_scipy(given)
    refuse("this needs an operator or a Problem", *_mix_up(given))


def _mix_up(given: Any) -> tuple[str, str]:
    if isinstance(given, type):
        return f"the class {given.__name__}", f"Make one first: {given.__name__}(...)."
    if isinstance(given, nn.Module):
        return f"the model {type(given).__name__}", "Say which loss and data: hs.Problem.of(model, loss, data)."
    if isinstance(given, np.ndarray | Tensor):
        name = "array" if isinstance(given, np.ndarray) else "tensor"
        return f"a plain {name} of shape {tuple(given.shape)}", "Write hs.Dense(matrix)."
    if callable(given):
        return f"the function {getattr(given, '__name__', '')!r}", "Call it, or pass hs.Hessian(problem)."
    return f"{type(given).__name__}", "Pass hs.Hessian(problem), another operator, or the problem itself."
