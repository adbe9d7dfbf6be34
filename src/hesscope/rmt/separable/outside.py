"""Where the spectrum is not: the real curve of the inverse map, split at its critical points.

Off the support of the law, δ is real. With ζ = -1/δ and s = x/e the equations read, symmetrically in g and t,

    K(ζ) = c T(s),   x = -ζ s K(ζ),   K(ζ) = E[g/(g - ζ)],   T(s) = E[t/(t - s)],

and x lies outside the support exactly where A = c E[g²/(1 + gδ)²] E[t²/(te - x)²] < 1; edges are where A = 1.
By Cauchy-Schwarz A < 1 needs E[g²/(g - ζ)²] < c and E[t²/(t - s)²] < 1/c, which leaves few gaps to look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from .population import Population, Real

_GRID = 0.5 - 0.5 * np.cos(np.pi * np.linspace(0.0, 1.0, 161))


@dataclass(frozen=True, eq=False)
class Arc:
    """A stretch of the real projective line, ζ = (a0 + a1 u)/(b0 + b1 u) for u in [0, 1]."""

    top: tuple[float, float]
    bottom: tuple[float, float]

    def at(self, u: Real) -> tuple[Real, Real]:
        return self.top[0] + self.top[1] * u, self.bottom[0] + self.bottom[1] * u


@dataclass(frozen=True, eq=False)
class Gap:
    """An open interval (left, right) of x without spectrum, with the way back to its (δ, e)."""

    left: float
    right: float
    curve: BranchCurve
    start: float
    stop: float


def allowed_arcs(population: Population, level: float) -> list[Arc]:
    """The stretches between the support intervals where E[g²/(g - ζ)²] < level (that function is convex on each)."""
    arcs = []
    lows = np.array([low for low, _ in population.support_intervals])
    highs = np.array([high for _, high in population.support_intervals])

    def second(zeta: float) -> float:
        return float(population.projective(np.array([zeta]), np.ones(1))[1][0]) - level

    if population.atomic and lows.size > 1:
        pull = np.cbrt(population.weights * population.nodes**2)
        candidates = np.flatnonzero((pull[:-1] + pull[1:]) ** 3 < level * np.diff(population.nodes) ** 2)
    else:
        candidates = np.arange(lows.size - 1)
    for i in candidates:
        left, right = highs[i], lows[i + 1]
        best = minimize_scalar(
            second, bounds=(left, right), method="bounded", options={"xatol": 1e-10 * (right - left)}
        )
        if best.fun < 0:
            start, stop = (_approach(second, end, best.x) for end in (left, right))
            arcs.append(Arc((start, stop - start), (1.0, 0.0)))
    arcs += _outer_arcs(population, second, level)
    return arcs


def _outer_arcs(population: Population, second: Any, level: float) -> list[Arc]:
    size = np.sqrt(population.moment(2) / level)
    low, high = population.low, population.high
    left = _approach(second, low, low - size - 1e-9 * abs(low)) if np.isfinite(low) else None
    right = _approach(second, high, high + size + 1e-9 * abs(high)) if np.isfinite(high) else None
    if left is not None and right is not None:
        # ζ = centre + half/v for v from 1 (ζ = right) through 0 (ζ = ∞) to -1 (ζ = left), v = 1 - 2u.
        centre, half = 0.5 * (left + right), 0.5 * (right - left)
        return [Arc((centre + half, -2.0 * centre), (1.0, -2.0))]
    scale = size + abs(left or 0.0) + abs(right or 0.0)
    if left is not None:
        return [Arc((-scale, left + scale), (0.0, 1.0))]
    if right is not None:
        return [Arc((right, scale - right), (1.0, -1.0))]
    return []


def _approach(function: Any, island: float, good: float) -> float:
    """Come from `good` (function < 0) towards an island and stop at the first change of sign, or next to the island.

    From afar, because quadrature of a continuous law cannot be trusted right next to its border.
    """
    near = good
    for shrink in 0.25 ** np.arange(1, 23):
        far, near = near, island + shrink * (good - island)
        if near == island:
            return far
        if function(near) > 0:
            return _cross(function, near, far)
    return near


def _cross(function: Any, bad: float, good: float) -> float:
    """Where the sign changes between `bad` (function > 0) and `good` (function < 0), up to rounding of either sign."""
    if not function(bad) > 0:
        return bad
    if not function(good) < 0:
        return good
    return float(brentq(function, bad, good, xtol=1e-15 * max(abs(bad), abs(good)), rtol=1e-15))


@dataclass(frozen=True, eq=False)
class BranchCurve:
    """K(ζ) = c T(s) with ζ on one arc and s on another; T is monotone there, so u (for ζ) is the coordinate."""

    g: Population
    t: Population
    ratio: float
    outer: Arc
    inner: Arc

    def trace(self, u: Real) -> tuple[Real, Real, Real]:
        """(x, A, s-arc coordinate) at each u; A = inf where the curve has no point."""
        top, bottom = self.outer.at(u)
        k1, k2 = self.g.projective(top, bottom)
        place, inside = self._match(bottom * k1 / self.ratio)
        top2, bottom2 = self.inner.at(place)
        t1, t2 = self.t.projective(top2, bottom2)
        with np.errstate(divide="ignore", invalid="ignore"):
            by_g = np.abs(k1) * np.sqrt(t2) > np.abs(t1) * np.sqrt(k2)
            a = np.where(by_g, self.ratio * bottom2**2 * k2 * t2 / k1**2, bottom**2 * k2 * t2 / (self.ratio * t1**2))
            use_s = np.abs(bottom2 * t1) > np.abs(bottom * k1)
            x = np.where(use_s, -top * top2 * k1 / bottom2, -top * top2 * self.ratio * t1 / bottom)
        return x, np.where(inside & np.isfinite(a), a, np.inf), place

    def delta_e(self, u: float) -> tuple[float, float]:
        """The real (δ, e) at coordinate u (δ is infinite where ζ = 0)."""
        top, bottom = self.outer.at(np.array([u]))
        k1, _ = self.g.projective(top, bottom)
        with np.errstate(divide="ignore"):
            return float(-bottom[0] / top[0]), float(-top[0] * k1[0])

    def _match(self, target: Real) -> tuple[Real, Any]:
        """The coordinate on the s-arc where T(s) = target (T increases along it), and whether it exists."""
        low, high = self._transform(np.array([0.0, 1.0]))[0]
        inside = (target >= low) & (target <= high)
        left, right = np.zeros_like(target), np.ones_like(target)
        place = np.full_like(target, 0.5)
        for _ in range(60):
            value, slope = self._transform(place)
            miss = value - target
            left, right = np.where(miss < 0, place, left), np.where(miss < 0, right, place)
            step = place - miss / slope
            # Newton inside the bracket, else bisection; the bracket itself shrinks either way.
            fresh = np.where((step > left) & (step < right), step, 0.5 * (left + right))
            moved = np.abs(fresh - place)
            place = fresh
            if not (moved[inside] > 1e-15).any():
                break
        return place, inside

    def _transform(self, place: Real) -> tuple[Real, Real]:
        """T and dT/du at coordinates u of the s-arc."""
        top, bottom = self.inner.at(place)
        resolvent = 1.0 / (np.multiply.outer(bottom, self.t.nodes) - top[:, None])
        weights = self.t.weights * self.t.nodes
        turn = self.inner.top[1] * self.inner.bottom[0] - self.inner.top[0] * self.inner.bottom[1]
        return bottom * (resolvent @ weights), turn * (resolvent**2 @ weights)


def gaps(g: Population, t: Population, ratio: float) -> list[Gap]:
    """Every maximal open interval of x without spectrum, ascending; the first and last may reach infinity."""
    found: list[Gap] = []
    inner_arcs = allowed_arcs(t, 1.0 / ratio)
    for outer in allowed_arcs(g, ratio):
        for inner in inner_arcs:
            curve = BranchCurve(g, t, ratio, outer, inner)
            for start, stop in _runs(curve):
                found += _cut_at_infinity(curve, start, stop)
    return sorted(found, key=lambda gap: gap.left)


def _runs(curve: BranchCurve) -> Iterator[tuple[float, float]]:
    """Maximal intervals of u with A < 1, their ends by bisection on A - 1."""

    def excess(u: float) -> float:
        a = min(float(curve.trace(np.array([u]))[1][0]), 1e300)
        return (a - 1.0) / (a + 1.0)

    grid = _GRID
    values = np.minimum(curve.trace(grid)[1], 1e300)
    # A narrow gap may hide between grid points: look into every local minimum that stays above one.
    valley = [
        i for i in range(1, grid.size - 1) if 1.0 <= values[i] < 4.0 and values[i] <= min(values[i - 1], values[i + 1])
    ]
    for i in valley:
        best = minimize_scalar(excess, bounds=(grid[i - 1], grid[i + 1]), method="bounded", options={"xatol": 1e-12})
        if best.fun < 0:
            grid, values = np.append(grid, best.x), np.append(values, 0.0)
    order = np.argsort(grid)
    grid, values = grid[order], values[order]
    free = values < 1.0
    starts = np.flatnonzero(free & ~np.concatenate([[False], free[:-1]]))
    stops = np.flatnonzero(free & ~np.concatenate([free[1:], [False]]))
    for first, last in zip(starts, stops, strict=True):
        start = grid[0] if first == 0 else _cross(excess, grid[first - 1], grid[first])
        stop = grid[-1] if last == grid.size - 1 else _cross(excess, grid[last + 1], grid[last])
        yield float(start), float(stop)


def _cut_at_infinity(curve: BranchCurve, start: float, stop: float) -> list[Gap]:
    """Split a run where x passes through infinity (δ = 0), so that every gap is an interval of the line."""
    left, right = (float(value) for value in curve.trace(np.array([start, stop]))[0])
    unit = np.sqrt(curve.g.moment(2)) * curve.t.moment(1)
    # A hard edge is computed as a product with a rounded zero.
    left, right = (0.0 if abs(end) < 1e-12 * unit else end for end in (left, right))
    bottom = curve.outer.at(np.array([start, stop]))[1]
    if curve.inner.bottom[1] != 0:
        if np.prod(bottom) < 0:
            pole = -curve.outer.bottom[0] / curve.outer.bottom[1]
            return [Gap(left, np.inf, curve, start, pole), Gap(-np.inf, right, curve, pole, stop)]
        left = -np.inf if bottom[0] == 0 else left
        right = np.inf if bottom[1] == 0 else right
    return [Gap(left, right, curve, start, stop)]
