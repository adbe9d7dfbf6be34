"""What algorithms on operators find: eigenpairs, densities, estimates, solutions. Torch is for type checkers only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import refuse
from ..measure import Array, AtomicMeasure
from ..result import Result

if TYPE_CHECKING:
    from torch import Tensor

Bools = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Eigenpairs(Result):
    """H vᵢ ≈ λᵢ vᵢ, each with its residual ‖H vᵢ − λᵢ vᵢ‖.

    `values` descend for "largest", ascend for "smallest", fall in magnitude for "magnitude"; for "both" the k largest
    come first (descending), then the k smallest (ascending). `vectors` is the local `(n, k)` block, an array once it
    comes from a file. `product_error`, here and below: what products themselves may be off by, for a unit vector, where
    they are finite differences; residuals and errors contain it.
    """

    _pictured = True

    values: Array
    vectors: Tensor
    residuals: Array
    converged: Bools
    products: int
    tol: float
    check: str = "unchecked"
    product_error: float = 0.0

    def table(self) -> dict[str, Any]:
        ranks = range(1, self.values.size + 1)
        return {
            "rank": list(ranks),
            "eigenvalue": self.values,
            "residual": self.residuals,
            "converged": [bool(done) for done in self.converged],
        }

    def without_vectors(self) -> Eigenpairs:
        """The same with an empty `(n, 0)` block, where the vectors would be too much to keep."""
        return replace(self, vectors=self.vectors[:, :0])


@dataclass(frozen=True, eq=False)
class SpectralDensity(AtomicMeasure, Result):
    """An estimate of (1/n) Σ_i δ(λ_i), as a measure with a standard error.

    `outliers` are eigenvalues known one by one (weight 1/n each); `probe_nodes` and `probe_weights` hold the rest as
    every random probe sees it. `error` is the estimated W₁ distance from the true spectrum, `sup_error` the estimated
    Kolmogorov distance (up to shifts of 1 % of the spread); both are 0 when the spectrum is exact.
    """

    _pictured = True

    size: int
    outliers: Array
    probe_nodes: tuple[Array, ...]
    probe_weights: tuple[Array, ...]
    steps: tuple[int, ...]
    error: float
    sup_error: float
    products: int
    method: str
    check: str = "unchecked"
    product_error: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether this is the spectrum itself."""
        return not self.probe_nodes

    def table(self) -> dict[str, Any]:
        known = np.isin(self.nodes, self.outliers)
        return {"eigenvalue": self.nodes, "weight": self.weights, "resolved": known.tolist()}

    def plot(self, theory: Any = None) -> Any:
        """The density with its error band, and a law over it where one is given."""
        return self._figure(theory=theory)

    def cdf_stderr(self, x: ArrayLike) -> Array:
        """Standard error of `cdf(x)` over the draw of the probes."""
        points = np.asarray(x, dtype=np.float64)
        return self.stderr_of((self._bulk.nodes <= points[..., None]).astype(float))

    def density_stderr(self, x: ArrayLike, width: float) -> Array:
        """Standard error of `density(x, width)` over the draw of the probes."""
        if not 0 < width < math.inf:
            refuse("width must be positive and finite", f"{width}", "A width of zero would draw single atoms.")
        z = (np.asarray(x, dtype=np.float64)[..., None] - self._bulk.nodes) / width
        return self.stderr_of(np.exp(-0.5 * z * z) / (width * math.sqrt(2 * math.pi)))

    def moment_stderr(self, k: int) -> float:
        """Standard error of `moment(k)` over the draw of the probes."""
        return float(self.stderr_of(self._bulk.nodes**k))

    def probe(self, index: int) -> AtomicMeasure:
        """The spectrum without the outliers, as probe `index` sees it."""
        if index not in range(len(self.probe_nodes)):
            refuse(f"there are {len(self.probe_nodes)} probes", f"probe {index!r}", "Count them from 0.")
        return AtomicMeasure(self.probe_nodes[index], self.probe_weights[index])

    @property
    def _bulk(self) -> AtomicMeasure:
        if self.exact:
            return AtomicMeasure(self.nodes, self.weights)
        return AtomicMeasure.mixture([self.probe(i) for i in range(len(self.probe_nodes))])

    def stderr_of(self, values: Array) -> Array:
        """Standard error of ∫ f over the draw of the probes, `values[..., j]` = f at node j of all probes, ascending.

        For a uniformly random unit vector v in m dimensions, Var(vᵀf(H)v) = 2 Var(f(λ)) / (m + 2).
        """
        if self.exact:
            return np.zeros(values.shape[:-1])
        weights = self._bulk.weights
        variance = np.maximum(values**2 @ weights - (values @ weights) ** 2, 0.0)
        rest = self.size - self.outliers.size
        return np.asarray(rest / self.size * np.sqrt(2 * variance / ((rest + 2) * len(self.probe_nodes))))


@dataclass(frozen=True, eq=False)
class Estimate(Result):
    """`value` ± `stderr` (a number, or one per entry), from `products` products; `exact` when nothing was sampled."""

    value: float | Array
    stderr: float | Array
    products: int
    method: str
    exact: bool = False
    check: str = "unchecked"
    product_error: float = 0.0

    def table(self) -> dict[str, Any]:
        value, stderr = np.atleast_1d(self.value), np.atleast_1d(self.stderr)
        if value.size > 1 or np.ndim(self.value):
            return {"entry": list(range(value.size)), "value": value, "stderr": np.broadcast_to(stderr, value.shape)}
        said = {"products": [self.products], "method": [self.method], "exact": [self.exact]}
        return {"value": value, "stderr": stderr, **said}

    def __float__(self) -> float:
        return float(self.value)


@dataclass(frozen=True, eq=False)
class Solution(Result):
    """`x` with `residual` = ‖(A + damping · I) x − b‖ / ‖b‖, recomputed from x with one more product."""

    x: Tensor
    residual: float
    converged: bool
    products: int
    method: str
    check: str = "unchecked"
    product_error: float = 0.0
