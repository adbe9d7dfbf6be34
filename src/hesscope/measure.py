"""A spectrum is a probability measure: atoms (exact, quadrature, closed form) or a law (a limit)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from .arguments import Array as Array
from .arguments import as_float, is_count, real_array, shown
from .errors import refuse

_ROUNDING = 1e-12  # a level may leave [0, 1] by this much, and is then its end


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
        if not left <= right:
            refuse("an interval needs left <= right", f"{left} and {right}", "Exchange them.")
        low, high = self.cdf([left, right])
        return float(high - low)

    def kolmogorov(self, other: Measure) -> float:
        """sup_x |F(x) - G(x)|: at the atoms where there are any, else on a grid of 4001 quantiles."""
        need_measure(other)
        points = np.unique(np.concatenate([self._test_points(), other._test_points()]))
        # A cdf jumps at its atoms: look at both sides of every point.
        both = np.concatenate([points, np.nextafter(points, -np.inf)])
        return float(np.max(np.abs(self.cdf(both) - other.cdf(both))))

    def wasserstein(self, other: Measure, points: int = 4001) -> float:
        """W1 = ∫ |F^-1 - G^-1| dq (exact between atomic measures, midpoint rule otherwise)."""
        need_measure(other)
        if not is_count(points, 1):
            refuse("points must be an integer >= 1", shown(points), "The default is 4001.")
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
        x = real_array("nodes", nodes, "Pass eigenvalues.").ravel()
        w = np.full(x.shape, 1.0) if weights is None else real_array("weights", weights).ravel()
        fault = _fault(x, w)
        if fault:
            refuse(
                "a measure needs at least one finite node and as many non-negative weights",
                fault,
                "Pass eigenvalues, or quadrature nodes with their weights.",
            )
        order = np.argsort(x, kind="stable")
        return AtomicMeasure(x[order], w[order] / w.sum())

    @staticmethod
    def mixture(parts: list[AtomicMeasure], shares: ArrayLike | None = None) -> AtomicMeasure:
        """The average of measures (with equal shares when none are given)."""
        if not parts:
            refuse("a mixture needs at least one measure", "none", "Pass a list of measures.")
        for part in parts:
            if not isinstance(part, AtomicMeasure):
                refuse("the parts of a mixture must be atomic measures", shown(part), "Use AtomicMeasure.of.")
        s = np.full(len(parts), 1.0 / len(parts)) if shares is None else real_array("shares", shares).ravel()
        if s.size != len(parts) or not (s >= 0).all():
            refuse(
                f"shares must be {len(parts)} number{'s' if len(parts) > 1 else ''} >= 0",
                f"{s.tolist()}",
                "Pass one for each measure.",
            )
        return AtomicMeasure.of(
            np.concatenate([part.nodes for part in parts]),
            np.concatenate([share * part.weights for share, part in zip(s, parts, strict=True)]),
        )

    def cdf(self, x: ArrayLike) -> Array:
        total = np.concatenate([[0.0], np.cumsum(self.weights)])
        return np.asarray(np.minimum(total, 1.0)[np.searchsorted(self.nodes, points_of(x), side="right")])

    def moment(self, k: int) -> float:
        power = as_float(k)
        with np.errstate(all="ignore"):
            found = np.nan if power is None else float(self.weights @ self.nodes**k)
        if not np.isfinite(found):
            refuse(
                "a moment needs a power that every node has",
                f"k = {shown(k)} with nodes from {self.nodes[0]:g} to {self.nodes[-1]:g}",
                "Use an integer k >= 0.",
            )
        return found

    def quantile(self, q: ArrayLike) -> Array:
        total = np.cumsum(self.weights)
        place = np.searchsorted(total, levels_of(q) * (1 - 1e-14), side="left")
        return np.asarray(self.nodes[np.minimum(place, self.nodes.size - 1)])

    def density(self, x: ArrayLike, width: float = 0.0) -> Array:
        _need_width(width)
        points = points_of(x)
        flat = points.reshape(-1)
        out = np.empty_like(flat)
        step = max(1, 4_000_000 // max(1, self.nodes.size))
        for start in range(0, flat.size, step):
            z = (flat[start : start + step, None] - self.nodes) / width
            out[start : start + step] = np.exp(-0.5 * z * z) @ self.weights
        return np.asarray(out / (width * np.sqrt(2 * np.pi))).reshape(points.shape)

    def smooth_cdf(self, x: ArrayLike, width: float) -> Array:
        """The cdf of the measure convolved with a Gaussian of standard deviation `width`."""
        _need_width(width)
        z = (points_of(x)[..., None] - self.nodes) / width
        return np.asarray(ndtr(z) @ self.weights)

    def _test_points(self) -> Array:
        return self.nodes


def need_measure(other: object) -> None:
    """Refuse bare eigenvalues, which do not say whether they are all of them."""
    if not isinstance(other, Measure):
        refuse("the other measure must be a measure", shown(other), "Use AtomicMeasure.of for eigenvalues.")


def points_of(x: ArrayLike) -> Array:
    """Points of the real line, infinite ones included."""
    points = real_array("x", x)
    if np.isnan(points).any():
        refuse("x must hold numbers", "nan among them", "Remove these entries.")
    return points


def levels_of(q: ArrayLike) -> Array:
    """Probabilities, which rounding may have left a little outside."""
    levels = real_array("q", q)
    outside = ~((levels >= -_ROUNDING) & (levels <= 1 + _ROUNDING))
    if outside.any():
        refuse("the levels of quantiles must lie in [0, 1]", f"{levels[outside].flat[0]}", "Divide per cent by 100.")
    return np.clip(levels, 0.0, 1.0)


def _need_width(width: float) -> None:
    found = as_float(width)
    if found is None or not found > 0:
        refuse(
            "the density of an atomic measure needs width > 0",
            f"width={width}",
            "Try 1 % of the spectrum's range.",
        )


def _fault(nodes: Array, weights: Array) -> str:
    """What keeps nodes and weights from being a measure; nothing where they are one."""
    if nodes.size == 0 or weights.shape != nodes.shape:
        return f"{nodes.size} nodes, {weights.size} weights"
    bad_nodes, bad_weights = nodes[~np.isfinite(nodes)], weights[~(np.isfinite(weights) & (weights >= 0))]
    if bad_nodes.size:
        return f"a node {bad_nodes[0]}"
    if bad_weights.size:
        return f"a weight {bad_weights[0]}"
    return "" if weights.sum() > 0 else "weights that sum to 0"
