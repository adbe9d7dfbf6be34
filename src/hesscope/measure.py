"""A spectrum is a probability measure: atoms (exact, quadrature, closed form) or a law (a limit)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from .errors import refuse

Array = NDArray[np.float64]


class Measure(ABC):
    """What measured and predicted spectra have in common, so that they compare directly."""

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Array:
        """P(λ <= x)."""

    @abstractmethod
    def moment(self, k: int) -> float:
        """E[λ^k]."""

    @abstractmethod
    def quantile(self, q: ArrayLike) -> Array:
        """The smallest x with P(λ <= x) >= q."""

    @abstractmethod
    def density(self, x: ArrayLike, width: float = 0.0) -> Array:
        """The density at `x`, smoothed by a Gaussian of standard deviation `width`."""

    @property
    def mean(self) -> float:
        return self.moment(1)

    @property
    def variance(self) -> float:
        return self.moment(2) - self.moment(1) ** 2

    def mass(self, left: float, right: float) -> float:
        """P(left < λ <= right)."""
        low, high = self.cdf([left, right])
        return float(high - low)

    def kolmogorov(self, other: Measure) -> float:
        """sup_x |F(x) - G(x)|: at the atoms where there are any, else on a grid of 4001 quantiles."""
        points = np.unique(np.concatenate([self._test_points(), other._test_points()]))
        # A cdf jumps at its atoms: look at both sides of every point.
        both = np.concatenate([points, np.nextafter(points, -np.inf)])
        return float(np.max(np.abs(self.cdf(both) - other.cdf(both))))

    def wasserstein(self, other: Measure, points: int = 4001) -> float:
        """W1 = ∫ |F^-1 - G^-1| dq (exact between atomic measures, midpoint rule otherwise)."""
        if isinstance(self, AtomicMeasure) and isinstance(other, AtomicMeasure):
            grid = np.unique(np.concatenate([self.nodes, other.nodes]))
            return float(np.sum(np.abs(self.cdf(grid[:-1]) - other.cdf(grid[:-1])) * np.diff(grid)))
        q = (np.arange(points) + 0.5) / points
        return float(np.mean(np.abs(self.quantile(q) - other.quantile(q))))

    def _test_points(self) -> Array:
        return self.quantile((np.arange(4001) + 0.5) / 4001)


@dataclass(frozen=True, eq=False)
class AtomicMeasure(Measure):
    """Weighted points: Σ_i weights_i δ(nodes_i), nodes ascending, weights summing to one.

    >>> m = AtomicMeasure.of([3.0, 1.0, 2.0])
    >>> m.nodes.tolist(), m.moment(1), float(m.cdf(2.0))
    ([1.0, 2.0, 3.0], 2.0, 0.6666666666666666)
    """

    nodes: Array
    weights: Array

    @staticmethod
    def of(nodes: ArrayLike, weights: ArrayLike | None = None) -> AtomicMeasure:
        """Sort the nodes and normalise the weights (equal ones when none are given)."""
        x = np.asarray(nodes, dtype=np.float64).ravel()
        w = np.full(x.shape, 1.0) if weights is None else np.asarray(weights, dtype=np.float64).ravel()
        if x.size == 0 or w.shape != x.shape or not np.all(np.isfinite(x)) or not w.sum() > 0 or (w < 0).any():
            refuse(
                "a measure needs at least one finite node and as many non-negative weights",
                f"{x.size} nodes, {w.size} weights",
                "Pass eigenvalues, or quadrature nodes with their weights.",
            )
        order = np.argsort(x, kind="stable")
        return AtomicMeasure(x[order], w[order] / w.sum())

    @staticmethod
    def mixture(parts: list[AtomicMeasure], shares: ArrayLike | None = None) -> AtomicMeasure:
        """The average of measures (with equal shares when none are given)."""
        s = np.full(len(parts), 1.0 / len(parts)) if shares is None else np.asarray(shares, dtype=np.float64)
        return AtomicMeasure.of(
            np.concatenate([part.nodes for part in parts]),
            np.concatenate([share * part.weights for share, part in zip(s, parts, strict=True)]),
        )

    def cdf(self, x: ArrayLike) -> Array:
        total = np.concatenate([[0.0], np.cumsum(self.weights)])
        return np.asarray(np.minimum(total, 1.0)[np.searchsorted(self.nodes, np.asarray(x, float), side="right")])

    def moment(self, k: int) -> float:
        return float(self.weights @ self.nodes**k)

    def quantile(self, q: ArrayLike) -> Array:
        total = np.cumsum(self.weights)
        place = np.searchsorted(total, np.asarray(q, dtype=np.float64) * (1 - 1e-14), side="left")
        return np.asarray(self.nodes[np.minimum(place, self.nodes.size - 1)])

    def density(self, x: ArrayLike, width: float = 0.0) -> Array:
        if not width > 0:
            refuse(
                "the density of an atomic measure needs width > 0",
                f"width={width}",
                "Try 1 % of the spectrum's range.",
            )
        points = np.asarray(x, dtype=np.float64)
        flat = points.reshape(-1)
        out = np.empty_like(flat)
        step = max(1, 4_000_000 // max(1, self.nodes.size))
        for start in range(0, flat.size, step):
            z = (flat[start : start + step, None] - self.nodes) / width
            out[start : start + step] = np.exp(-0.5 * z * z) @ self.weights
        return np.asarray(out / (width * np.sqrt(2 * np.pi))).reshape(points.shape)

    def smooth_cdf(self, x: ArrayLike, width: float) -> Array:
        """The cdf of the measure convolved with a Gaussian of standard deviation `width`."""
        z = (np.asarray(x, dtype=np.float64)[..., None] - self.nodes) / width
        return np.asarray(ndtr(z) @ self.weights)

    def _test_points(self) -> Array:
        return self.nodes
