"""Operators that are only a function: of one vector, or SciPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import need_call, need_count
from ..errors import refuse
from .base import LinearOperator
from .tensors import tensor_of


class FromFunction(LinearOperator):
    """The matrix of a linear function of one vector `(n,)`, tensor to tensor; symmetric unless `adjoint` is given."""

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        size: int,
        *,
        dtype: torch.dtype = torch.float64,
        adjoint: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        need_call("function", function, "It maps a vector to a vector.")
        if function is None:
            refuse("function must be callable", "None", "It maps a vector to a vector.")
        self._size, self._dtype = need_count("size", size), dtype
        self._function, self._adjoint = function, adjoint
        self.symmetric = adjoint is None

    @property
    def shape(self) -> tuple[int, int]:
        return self._size, self._size

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def _apply(self, block: Tensor) -> Tensor:
        return self._columns(self._function, block)

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        return self._columns(self._adjoint or self._function, block)

    def _columns(self, function: Callable[[Tensor], Tensor], block: Tensor) -> Tensor:
        images = [tensor_of(function(column)) for column in block.unbind(1)]
        for image in images:
            if image.shape != (self._size,):
                refuse(
                    f"the function must return a vector of length {self._size}",
                    f"shape {tuple(image.shape)}",
                    "Flatten what it returns.",
                )
        return torch.stack(images).T.to(block)


def is_scipy(given: Any) -> bool:
    """Whether this is a SciPy operator or sparse matrix; SciPy's own are not imported for it."""
    return type(given).__module__.partition(".")[0] == "scipy" and hasattr(given, "shape") and hasattr(given, "dot")


def from_scipy(given: Any) -> LinearOperator:
    """A SciPy operator or sparse matrix as one of ours, in float64."""
    rows, columns = given.shape
    if rows != columns:
        refuse("a SciPy operator must be square", f"shape {given.shape}", "Multiply it by its transpose.")

    def product(matrix: Any) -> Callable[[Tensor], Tensor]:
        return lambda v: tensor_of(np.asarray(matrix.dot(v.numpy()), dtype=np.float64).ravel())

    # Algorithms test the symmetry of what they multiply by, and refuse a matrix that is not.
    return FromFunction(product(given), rows)
