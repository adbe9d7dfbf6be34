"""Quantiles of a law that has a density and a cdf: a table refined where it is steep, then Newton inside brackets."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .population import Real

_STEP = 1.0 / 256


class _Law(Protocol):
    @property
    def support(self) -> list[tuple[float, float]]: ...
    @property
    def mass_at_zero(self) -> float: ...
    def cdf(self, x: Real) -> Real: ...
    def density(self, x: Real) -> Real: ...
    def moment(self, k: int) -> float: ...


def quantile_table(law: _Law) -> tuple[Real, Real]:
    """(x, F(x)) with at most 1/256 of the mass between neighbours inside a bulk."""
    pieces = [_finite(law, left, right) for left, right in law.support]
    if law.mass_at_zero > 0 or not pieces:
        pieces.append(np.array([np.nextafter(0.0, -1.0), 0.0]))
    x = np.unique(np.concatenate(pieces))
    level = law.cdf(x)
    bulks = law.support
    for _ in range(30):
        middle = 0.5 * (x[:-1] + x[1:])
        inside = np.zeros(middle.shape, dtype=bool)
        for left, right in bulks:
            inside |= (middle > left) & (middle < right)
        wide = np.flatnonzero((np.diff(level) > _STEP) & inside & (np.diff(x) > 1e-13 * np.abs(middle)))
        if wide.size == 0:
            break
        x, level = np.insert(x, wide + 1, middle[wide]), np.insert(level, wide + 1, law.cdf(middle[wide]))
    return x, np.maximum.accumulate(level)


def _finite(law: _Law, left: float, right: float) -> Real:
    """Starting points of one bulk; an infinite end is replaced by a point with less than 1e-14 beyond it."""
    scale = float(np.sqrt(law.moment(2)))
    if np.isinf(right):
        right = next(
            r for r in max(left, 0.0) + scale * 2.0 ** np.arange(1, 200) if law.cdf(np.array([r]))[0] > 1 - 1e-14
        )
    if np.isinf(left):
        left = next(r for r in min(right, 0.0) - scale * 2.0 ** np.arange(1, 200) if law.cdf(np.array([r]))[0] < 1e-14)
    return np.asarray(0.5 * (left + right) - 0.5 * (right - left) * np.cos(np.linspace(0.0, np.pi, 65)))


def quantile(law: _Law, known: tuple[Real, Real], q: Real) -> Real:
    """Bracket each level in the table, then Newton steps that fall back on bisection."""
    x, level = known
    place = np.clip(np.searchsorted(level, q * (1 - 1e-14), side="left"), 1, x.size - 1)
    low, high = x[place - 1].copy(), x[place].copy()
    out = high.copy()
    out[q <= level[0]] = x[0]
    active = np.flatnonzero((q > level[0]) & (q <= level[-1]) & (high - low > 1e-13 * np.abs(high) + 1e-300))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (q - level[place - 1]) / (level[place] - level[place - 1])
    guess = low + share * (high - low)
    for _ in range(60):
        if active.size == 0:
            break
        here = guess[active]
        miss = law.cdf(here) - q[active]
        low[active] = np.where(miss < 0, here, low[active])
        high[active] = np.where(miss < 0, high[active], here)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = here - miss / law.density(here)
        safe = (step >= low[active]) & (step <= high[active])
        fresh = np.where(safe, step, 0.5 * (low[active] + high[active]))
        width = np.maximum(np.abs(fresh), np.abs(high[active]))
        done = (np.abs(fresh - here) <= 1e-13 * width) | (np.abs(miss) <= 1e-15)
        guess[active] = fresh
        out[active] = fresh
        active = active[~done]
    return out
