"""The limiting spectrum of (1/n) Σ_i g_i x_i x_iᵀ with cov(x) = C: the separable law, for any signs of g."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...arguments import as_float, shown
from ...errors import refuse
from ...measure import AtomicMeasure, Measure, levels_of, points_of
from . import quantiles
from .fixed_point import cumulative, upper_fixed_point
from .outside import Gap, gaps
from .population import Complex, Population, Real
from .power_series import separable_moments
from .real_axis import real_delta


@dataclass(frozen=True, eq=False)
class GeneralisedMarchenkoPastur(Measure):
    """m(z) = E[1/(t e - z)], e = E[g/(1 + gδ)], δ = c E[t/(t e - z)]: g ~ population_g, t ~ population_c, c = p/n.

    The limit of the spectrum of X diag(g) Xᵀ/n for p x n data X with covariance spectrum `population_c` (None: the
    identity). Atoms of g may be negative; a continuous law is passed as quadrature nodes and weights. The density
    costs about 10 Newton steps per point, each linear in the number of atoms. Reference: Liao & Mahoney (2021),
    Theorem 1; Couillet & Hachem (2014) for the support.

    >>> one = AtomicMeasure.of([1.0])
    >>> law = GeneralisedMarchenkoPastur(one, one, 0.25)
    >>> [round(edge, 12) for edge in law.edges], round(float(law.density(1.0)), 6)
    ([0.25, 2.25], 0.616404)
    """

    population_g: AtomicMeasure | Population
    population_c: AtomicMeasure | Population | None
    ratio: float

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        for name in ("population_g", "population_c"):
            given = getattr(self, name)
            if not (isinstance(given, AtomicMeasure | Population) or (given is None and name == "population_c")):
                refuse(f"{name} must be an atomic measure", shown(given), "Use hs.AtomicMeasure.of(values).")
        if self._t.low < 0:
            refuse(
                "the covariance spectrum must not be negative",
                f"an eigenvalue {self._t.low:g}",
                "Pass the eigenvalues of a covariance matrix; signs belong to population_g.",
            )

    @cached_property
    def _g(self) -> Population:
        g = self.population_g
        return g if isinstance(g, Population) else Population.atoms(g, "population_g")

    @cached_property
    def _t(self) -> Population:
        t = AtomicMeasure.of([1.0]) if self.population_c is None else self.population_c
        return t if isinstance(t, Population) else Population.atoms(t, "population_c")

    @cached_property
    def _scale(self) -> float:
        """The root mean square of the spectrum: the natural unit of x."""
        return float(np.sqrt(self.moment(2)))

    @property
    def _is_zero(self) -> bool:
        return self._g.nodes.size == 0 or self._t.nodes.size == 0

    @property
    def mass_at_zero(self) -> float:
        """max(P(t = 0), 1 - P(g ≠ 0)/c): the share of exact zeros, counted by rank."""
        return max(self._t.zero_mass, 1.0 - (1.0 - self._g.zero_mass) / self.ratio, 0.0)

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """The open intervals without spectrum (besides an atom at zero), ascending, each with its real δ curve."""
        return () if self._is_zero else tuple(gaps(self._g, self._t, self.ratio))

    @cached_property
    def support(self) -> list[tuple[float, float]]:
        """The bulks (left, right), ascending; an infinite end means unbounded. An atom at zero is not listed."""
        if self._is_zero:
            return []
        bulks, left = [], -np.inf
        for gap in self.gaps:
            if gap.left > left:
                bulks.append((left, gap.left))
            left = gap.right
        if left < np.inf:
            bulks.append((left, np.inf))
        return [(float(a), float(b)) for a, b in bulks]

    @property
    def edges(self) -> list[float]:
        """The finite ends of the bulks, ascending."""
        return [end for bulk in self.support for end in bulk if np.isfinite(end)]

    def density(self, x: ArrayLike, width: float = 0.0) -> Real:
        """The density of the continuous part at `x` (zero off the support), or the whole law smoothed by `width`."""
        points = points_of(x)
        smooth = as_float(width)
        if smooth is None or not smooth >= 0:
            refuse("width must be >= 0", f"width={width}", "Use 0 for the density itself.")
        if width > 0:
            return AtomicMeasure.of(self._test_points()).density(points, width)
        flat = points.reshape(-1)
        out = np.zeros_like(flat)
        inside = self._bulk_of(flat) >= 0
        if inside.any():
            here = flat[inside]
            _, e = self._solve(here)
            t, w = self._t.nodes, self._t.weights
            out[inside] = -e.imag * ((t / np.abs(np.multiply.outer(e, t) - here[:, None]) ** 2) @ w) / np.pi
        return out.reshape(points.shape)

    def cdf(self, x: ArrayLike) -> Real:
        """P(λ <= x), from the stationary log-determinant: no integration, accurate to rounding."""
        points = points_of(x)
        flat = points.reshape(-1)
        if self._is_zero:
            return np.where(points >= 0, 1.0, 0.0)
        bulk = self._bulk_of(flat)
        out = np.empty_like(flat)
        inside = bulk >= 0
        if inside.any():
            here = np.where(flat[inside] == 0, 1e-300, flat[inside])
            delta, e = self._solve(here)
            out[inside] = cumulative(here + 0j, delta, e, self._g, self._t, self.ratio)
        if not inside.all():
            out[~inside] = self._cdf_in_gaps(flat[~inside])
        return np.clip(out, 0.0, 1.0).reshape(points.shape)

    def quantile(self, q: ArrayLike) -> Real:
        """The smallest x with P(λ <= x) >= q, to about 1e-12 of the spectrum's scale."""
        levels = levels_of(q)
        return quantiles.quantile(self, self._table, levels.reshape(-1)).reshape(levels.shape)

    def moment(self, k: int) -> float:
        """E[λ^k], exact: the series of the fixed point at z = ∞, from the moments of g and t."""
        order = as_float(k)
        if order is None or not 0 <= order < np.inf or order != int(order):
            refuse("a moment needs an integer k >= 0", shown(k), "Integrate the density for other powers.")
        return separable_moments(self._g, self._t, self.ratio, int(k))[int(k)]

    def stieltjes(self, z: ArrayLike) -> Complex:
        """m(z) = ∫ (λ - z)⁻¹ μ(dλ), anywhere off the support; on it, the limit from above."""
        points = np.asarray(z, dtype=np.complex128)
        if np.isnan(points).any():
            refuse("z must hold numbers", "nan among them", "Remove these entries.")
        flat = points.reshape(-1)
        _, e = self.fixed_point(flat)
        below = flat.imag < 0
        upper = np.where(below, flat.conj(), flat)
        with np.errstate(divide="ignore", invalid="ignore"):
            m = (1.0 / (np.multiply.outer(e, self._t.nodes) - upper[:, None])) @ self._t.weights
            if self._t.zero_mass:
                m = m - self._t.zero_mass / upper
        return np.where(below, m.conj(), m).reshape(points.shape)

    def fixed_point(self, z: Complex) -> tuple[Complex, Complex]:
        """(δ, e) at each z (for Im z < 0: at its conjugate), real off the support."""
        upper = np.where(z.imag < 0, z.conj(), z)
        if self._is_zero:
            return np.zeros_like(upper), np.full_like(upper, self._g.moment(1))
        delta, e = np.empty_like(upper), np.empty_like(upper)
        outside = (upper.imag == 0) & (self._bulk_of(upper.real) < 0)
        delta[~outside], e[~outside] = self._solve(upper[~outside])
        delta[outside], e[outside] = real_delta(self.gaps, upper.real[outside])
        return delta, e

    def _solve(self, z: Real | Complex) -> tuple[Complex, Complex]:
        return upper_fixed_point(np.asarray(z, np.complex128), self._g, self._t, self.ratio, self._scale)

    def _bulk_of(self, x: Real) -> NDArray[np.intp]:
        """The index of the bulk whose interior holds x, else -1."""
        place = np.full(x.shape, -1, dtype=np.intp)
        for index, (left, right) in enumerate(self.support):
            place[(x > left) & (x < right)] = index
        return place

    def smooth_cdf(self, x: ArrayLike, width: float) -> Real:
        """P(λ + width·Cauchy <= x): needs neither the support nor the real axis, hence cheap and smooth in parameters."""
        points = points_of(x)
        smooth = as_float(width)
        if smooth is None or not 0 < smooth < np.inf:
            refuse("width must be positive and finite", f"width={width}", "Use cdf(x) for width 0.")
        z = np.asarray(points.reshape(-1) + 1j * width, np.complex128)
        delta, e = self._solve(z)
        return cumulative(z, delta, e, self._g, self._t, self.ratio).reshape(points.shape)

    @cached_property
    def _levels(self) -> list[float]:
        """F on every gap, without the atom at zero."""
        levels = []
        for gap in self.gaps:
            if np.isinf(gap.left) or np.isinf(gap.right):
                levels.append(0.0 if np.isinf(gap.left) else 1.0 - self.mass_at_zero)
                continue
            # Off the ends, because δ is infinite at a hard edge.
            u = gap.start + 0.3 * (gap.stop - gap.start)
            x = float(gap.curve.trace(np.array([u]))[0][0])
            z, delta, e = (np.array([value + 0j]) for value in (x, *gap.curve.delta_e(u)))
            level = float(cumulative(z, delta, e, self._g, self._t, self.ratio)[0])
            levels.append(level - self.mass_at_zero * (x >= 0))
        return levels

    def _cdf_in_gaps(self, x: Real) -> Real:
        bulks_below = np.sum([x >= right for _, right in self.support], axis=0, dtype=np.intp)
        first = 0 if np.isinf(self.gaps[0].left) else 1
        return np.asarray(np.asarray(self._levels)[bulks_below - first] + self.mass_at_zero * (x >= 0))

    @cached_property
    def _table(self) -> tuple[Real, Real]:
        return quantiles.quantile_table(self)

    def _test_points(self) -> Real:
        return self._table[0]


def check_ratio(ratio: float) -> None:
    """Refuse a limit of p/n that is none."""
    found = as_float(ratio)
    if found is None or not 0 < found < np.inf:
        refuse("ratio = p/n must be positive and finite", shown(ratio), "Pass the limit of p/n, such as 0.25.")
