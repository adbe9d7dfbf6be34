"""Operators that come from a problem: in its type and at its place."""

from __future__ import annotations

import torch

from ..operators import LinearOperator
from .problem import Problem


class OfProblem(LinearOperator):
    """An operator whose products are computed from `problem`."""

    problem: Problem

    @property
    def dtype(self) -> torch.dtype:
        return self.problem.dtype

    @property
    def device(self) -> torch.device:
        return self.problem.device
