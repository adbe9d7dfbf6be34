"""Operators that come from a problem: in its type and at its place."""

from __future__ import annotations

from typing import Any

import torch

from ..operators import LinearOperator
from .problem import Problem


class OfProblem(LinearOperator):
    """An operator whose products are computed from `problem`."""

    problem: Problem

    def __deepcopy__(self, memo: Any) -> OfProblem:
        return self  # it does not change, and its graphs can be shared but not copied

    @property
    def dtype(self) -> torch.dtype:
        return self.problem.dtype

    @property
    def device(self) -> torch.device:
        return self.problem.device
