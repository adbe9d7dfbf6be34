"""The loss sees its parameters through products A = W Vᵀ: what one product contributes to the Hessian."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..arguments import shown
from ..errors import refuse
from ..measure import Array
from ..result import Result

Places = NDArray[np.int64]

# Units per QR factorisation: fits the cache, and lies above every width whose dense eigenvectors fit in memory,
# because the pieces' factor is not the one that `width_basis` completes.
CHUNK = 32_768


@dataclass(frozen=True, eq=False)
class Mode:
    """One eigenvector of the slope's swap matrix: `value` times the identity of the width, plus its share of the low rank.

    `direction` (K + D,) turns a vector z of the width into the parameters direction ⊗ z. The first `low_rank_part.shape[0]`
    columns of `basis` (r, r) carry the low-rank part, and `low_rank_part` (s, K, D) is that part in this basis.
    """

    value: float
    direction: Array
    basis: Array
    low_rank_part: Array


@dataclass(frozen=True, eq=False)
class WeightProduct(Result):
    """A = W Vᵀ with W = outer (K, m) and V = inner (D, m): a matrix through which alone the loss ℓ(A) sees W and V.

    slope (K, D) is ∂ℓ/∂A. Row a of (outer; inner) sits at starts[a] + strides[a] * units in the flat parameters, where
    units (m,) numbers the hidden units (0, 1, ..., m - 1 when None).
    Every parameter of hidden unit j lies in column j, so the Hessian of the loss is

        S ⊗ I_m + U (∂²ℓ/∂A²) Uᵀ,   S = [[0, slope], [slopeᵀ, 0]],   U = ∂A/∂(W, V).
    """

    name: str
    outer: Array
    inner: Array
    slope: Array
    starts: Places
    strides: Places
    units: Places | None = None

    def __post_init__(self) -> None:
        for name in ("outer", "inner", "slope", "starts", "strides"):
            given = getattr(self, name)
            if not isinstance(given, np.ndarray) or given.ndim != (1 if name in ("starts", "strides") else 2):
                kind = f"shape {given.shape}" if isinstance(given, np.ndarray) else shown(given)
                refuse(
                    "a product needs outer (K, m), inner (D, m), slope (K, D), starts and strides (K + D,)",
                    f"{kind} for {name}",
                    "Pass NumPy arrays with the hidden width last in outer and inner.",
                )
        (outputs, width), (inputs, width_too) = self.outer.shape, self.inner.shape
        rows = (outputs + inputs,)
        expected = ((outputs, inputs), rows, rows)
        if width != width_too or (self.slope.shape, self.starts.shape, self.strides.shape) != expected:
            refuse(
                "a product needs outer (K, m), inner (D, m), slope (K, D), starts and strides (K + D,)",
                f"{self.outer.shape}, {self.inner.shape}, {self.slope.shape}, {self.starts.shape}, {self.strides.shape}",
                "Put the hidden width last in outer and inner.",
            )

    @property
    def width(self) -> int:
        return int(self.outer.shape[1])

    @cached_property
    def places(self) -> Places:
        """Where each number of (outer; inner) sits in the flat parameters: (K + D, m)."""
        units = np.arange(self.width) if self.units is None else self.units
        return self.starts[:, None] + self.strides[:, None] * units

    @cached_property
    def _frame(self) -> tuple[Array, Array, Array]:
        """The slope's singular values and vectors: the frame in which S couples one row of W with one row of V."""
        left, sigma, right_t = np.linalg.svd(self.slope)
        return left, sigma, right_t.T

    def _rows(self, start: int = 0, stop: int | None = None) -> Array:
        """Hidden units start..stop, each with its K + D parameters: (units, K + D)."""
        return np.concatenate([self.outer[:, start:stop], self.inner[:, start:stop]]).T

    def _compressed(self) -> Array:
        """R of a QR factorisation of all units, (r, K + D): only inner products of the rows of W and V matter."""
        if self.width <= CHUNK:
            return np.asarray(np.linalg.qr(self._rows(), mode="r"))
        pieces = [np.linalg.qr(self._rows(i, i + CHUNK), mode="r") for i in range(0, self.width, CHUNK)]
        return np.asarray(np.linalg.qr(np.concatenate(pieces), mode="r"))

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The eigenvectors of S, each with the width directions that the low-rank part can touch; O(m (K + D)²)."""
        left, sigma, right = self._frame
        outputs, inputs, pairs = left.shape[0], right.shape[0], sigma.size
        small = self._compressed()
        w, v = small[:, :outputs] @ left, small[:, outputs:] @ right
        half = np.sqrt(0.5)
        kinds = [(s * sigma[i], i, half, s * half) for i in range(pairs) for s in (1.0, -1.0)]
        kinds += [(0.0, i, 1.0, 0.0) for i in range(pairs, outputs)] + [
            (0.0, i, 0.0, 1.0) for i in range(pairs, inputs)
        ]
        found = []
        for value, i, on_outer, on_inner in kinds:
            seen = np.zeros((small.shape[0], outputs, inputs))
            touched = np.zeros((outputs, inputs), dtype=bool)
            if on_outer:
                seen[:, i, :] += on_outer * v
                touched[i, :] = True
            if on_inner:
                seen[:, :, i] += on_inner * w
                touched[:, i] = True
            # The count of columns is structural, never a rank decided by a tolerance; a missing rank only means that
            # a bulk value turns up once more among the outliers.
            basis = np.linalg.qr(seen[:, touched], mode="complete").Q
            kept = min(small.shape[0], int(touched.sum()))
            turned = (basis[:, :kept].T @ seen.reshape(len(seen), -1)).reshape(kept, outputs, inputs)
            direction = np.zeros(outputs + inputs)
            if on_outer:
                direction[:outputs] = on_outer * left[:, i]
            if on_inner:
                direction[outputs:] = on_inner * right[:, i]
            found.append(Mode(float(value) + 0.0, direction, basis, left @ turned @ right.T))
        return tuple(found)

    def width_basis(self) -> Array:
        """An orthonormal basis (m, m) of the width whose first r columns are the small coordinates of `modes`."""
        return np.asarray(np.linalg.qr(self._rows(), mode="complete").Q)

    def gram(self) -> Array:
        """UᵀU = I_K ⊗ VVᵀ + WWᵀ ⊗ I_D, of size K D."""
        outputs, inputs = self.slope.shape
        by_inner = np.kron(np.eye(outputs), self.inner @ self.inner.T)
        return np.asarray(by_inner + np.kron(self.outer @ self.outer.T, np.eye(inputs)))

    def jacobian(self, size: int) -> Array:
        """U = ∂A/∂θ as a dense (size, K D) matrix."""
        outputs, inputs = self.slope.shape
        dense = np.zeros((size, outputs, inputs))
        for k in range(outputs):
            for d in range(inputs):
                dense[self.places[k], k, d] = self.inner[d]
                dense[self.places[outputs + d], k, d] = self.outer[k]
        return dense.reshape(size, -1)

    def add_swap(self, hessian: Array) -> None:
        """hessian += S ⊗ I_m, in place."""
        outputs, inputs = self.slope.shape
        for k in range(outputs):
            for d in range(inputs):
                rows, columns = self.places[k], self.places[outputs + d]
                hessian[rows, columns] += self.slope[k, d]
                hessian[columns, rows] += self.slope[k, d]
