"""Linear operators on flat vectors: four members to implement, the algebra for free."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np
import torch
from torch import Tensor

from ..arguments import need_count
from ..deadline import stop_if_late
from ..errors import refuse
from .autocast import own_types
from .finite import all_finite
from .layout import Layout
from .tensors import tensor_of

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator as ScipyOperator

    from ..results.spectra import Estimate
    from ..rng import Rng


class LinearOperator(ABC):
    """A real matrix that is known by its products.

    Implement `shape`, `dtype`, `device` and `_apply`; override `_apply_adjoint` unless `symmetric`. Algorithms call
    `apply` with `(n, k)` blocks; people write `A @ v`. What else an operator may know of itself (`known_trace`,
    `known_diagonal`, `fingerprint`, `verified`, `layout`, `preferred_block`) has a default here.
    """

    symmetric: bool = True

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype: ...

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def _apply(self, block: Tensor) -> Tensor:
        """A V for V of shape `(n, k)`, already checked and on the right device."""

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        """Aᵀ U for U of shape `(m, k)`."""
        if self.symmetric:
            return self._apply(block)
        refuse(
            f"{type(self).__name__} must define its adjoint to be transposed",
            "none",
            "Override _apply_adjoint.",
        )

    @property
    def fingerprint(self) -> str:
        """What tells this matrix from others of its kind, by content; a resumed run must find the same.

        Override it where the content is at hand. The product with one fixed vector is compared in any case.
        """
        return f"{type(self).__module__}.{type(self).__qualname__}{self.shape}"

    @property
    def verified(self) -> str:
        """What was proven of these products; results keep it in `.check`."""
        return "unchecked"

    @property
    def product_error(self) -> float:
        """The largest error of a product with a unit vector, beyond rounding, as far as products were made: 0 where they
        are exact, nan where nobody knows."""
        return 0.0

    def known_trace(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        """tr A to a relative standard error of `tol` from what the operator knows of itself; None where it knows nothing.

        Spends at most what `max_products` products cost, or declines with None.
        """
        return None

    def known_diagonal(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        """The diagonal in the same way, to a standard error of `tol` of its norm."""
        return None

    @property
    def layout(self) -> Layout:
        """How the vectors of the column space are stored; sharded operators override it."""
        return Layout(self.shape[1])

    @property
    def row_layout(self) -> Layout:
        """How products are stored: as vectors are, unless rows and columns differ in number."""
        return self.layout if self.shape[0] == self.shape[1] else Layout(self.shape[0])

    @property
    def preferred_block(self) -> int:
        """How many columns at a time this operator likes; 1 where a block costs as much as its columns."""
        return 1

    def apply(self, block: Tensor) -> Tensor:
        """A V for a local block `(n, k)` of this operator's layout."""
        stop_if_late()
        with own_types():
            return self._apply(block)

    @overload
    def __matmul__(self, other: LinearOperator) -> LinearOperator: ...

    @overload
    def __matmul__(self, other: Tensor | np.ndarray[Any, Any]) -> Tensor: ...

    def __matmul__(self, other: LinearOperator | Tensor | np.ndarray[Any, Any]) -> LinearOperator | Tensor:
        """A v for a vector or a block of them; the product A B for another operator."""
        if isinstance(other, LinearOperator):
            from .algebra import Product

            return Product(self, other)
        size = self.layout.local_size
        block = checked_vectors(other, size, "A @ v").to(device=self.device, dtype=self.dtype)
        out = self.apply(block.unsqueeze(1) if block.ndim == 1 else block)
        return out.squeeze(1) if block.ndim == 1 else out

    def __rmatmul__(self, other: Any) -> NoReturn:
        refuse("a vector stands to the right of its operator", f"{type(other).__name__} @ A", "Write A.T @ v.")

    def dense(self, chunk: int = 256) -> Tensor:
        """The whole matrix, from products with the identity, `chunk` columns at a time."""
        need_count("chunk", chunk)
        rows, columns = self.shape
        out = torch.empty(rows, columns, dtype=self.dtype, device=self.device)
        for start in range(0, columns, chunk):
            stop = min(start + chunk, columns)
            out[:, start:stop] = self.unit_products(start, stop)
        return out

    def unit_products(self, start: int, stop: int) -> Tensor:
        """Columns `start` to `stop` of the matrix, whole in every process that shares its vectors."""
        layout = self.layout
        first = min(max(start, layout.local.start), stop)
        here = torch.arange(first, max(first, min(stop, layout.local.stop)), device="cpu")
        units = torch.zeros(stop - start, layout.local_size, dtype=self.dtype, device=self.device).T
        units[here - layout.local.start, here - start] = 1
        return self.row_layout.gather(self.apply(units))

    def to_scipy(self) -> ScipyOperator:
        """The same operator for SciPy's solvers."""
        from scipy.sparse.linalg import LinearOperator as Scipy

        def forward(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            out: np.ndarray[Any, Any] = (self @ torch.from_numpy(np.ascontiguousarray(x))).cpu().numpy()
            return out

        def backward(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            out: np.ndarray[Any, Any] = (self.T @ torch.from_numpy(np.ascontiguousarray(x))).cpu().numpy()
            return out

        dtype = np.float64 if self.dtype == torch.float64 else np.float32
        return Scipy(self.shape, matvec=forward, matmat=forward, rmatvec=backward, rmatmat=backward, dtype=dtype)

    @property
    def T(self) -> LinearOperator:
        """The transpose."""
        if self.symmetric:
            return self
        from .algebra import Transposed

        return Transposed(self)

    def __add__(self, other: LinearOperator | float) -> LinearOperator:
        """A + B, or A + c I for a number c (damping)."""
        from .algebra import Sum, summand

        return Sum((self, summand(other, self)), (1.0, 1.0 if isinstance(other, LinearOperator) else number(other)))

    __radd__ = __add__

    def __sub__(self, other: LinearOperator | float) -> LinearOperator:
        return self + (-other if isinstance(other, LinearOperator) else -number(other))

    def __rsub__(self, other: float) -> LinearOperator:
        return -self + other

    def __mul__(self, scale: float) -> LinearOperator:
        from .algebra import Sum

        return Sum((self,), (number(scale),))

    __rmul__ = __mul__

    def __truediv__(self, scale: float) -> LinearOperator:
        divisor = number(scale)
        if divisor == 0.0:
            refuse("an operator is divided by a number other than 0", "A / 0", "Check the scale.")
        return self * (1.0 / divisor)

    def __neg__(self) -> LinearOperator:
        return self * -1.0

    # NumPy would otherwise take an operator apart, number by number.
    __array_ufunc__ = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.shape}"


def number(given: Any) -> float:
    """A finite number that an operator can be multiplied with or shifted by."""
    if isinstance(given, Tensor | np.ndarray) and (given.ndim or np.size(given) != 1):
        refuse("an operator takes numbers and operators", f"a {type(given).__name__}", "Write A + hs.Dense(matrix).")
    try:
        value = float(given)
    except (TypeError, ValueError):
        refuse("an operator takes numbers and operators", f"{type(given).__name__}", "Write A + B, A + 0.1 or 2 * A.")
    if isinstance(given, str) or not math.isfinite(value):
        refuse("an operator takes finite numbers", f"{given!r}", "Check the scale.")
    return value


def checked_vectors(given: Any, size: int, what: str) -> Tensor:
    """Vectors from users: a tensor or array of shape `(size,)` or `(size, k)` of finite real numbers."""
    if not isinstance(given, Tensor | np.ndarray):
        refuse(f"{what} needs a tensor or an array", f"{type(given).__name__}", "Flatten with problem.space.pack.")
    if isinstance(given, np.ndarray) and given.dtype.kind not in "biufc":
        refuse(f"{what} needs numbers", f"an array of dtype {given.dtype}", "Flatten with problem.space.pack.")
    v = tensor_of(given)
    if v.ndim not in (1, 2) or v.shape[0] != size:
        refuse(
            f"{what} needs a tensor of shape ({size},) or ({size}, k)",
            f"{tuple(v.shape)}",
            "Flatten the parameters with problem.space.pack.",
        )
    if v.is_meta:
        refuse(f"{what} needs numbers", "a tensor on the meta device", "Make it on the operator's own device.")
    if v.is_complex():
        refuse(f"{what} needs real numbers", f"{v.dtype}", "Multiply the real and the imaginary part apart.")
    if not all_finite(v):
        refuse(f"{what} needs finite numbers", "NaN or infinity", "Check where the vector comes from.")
    return v
