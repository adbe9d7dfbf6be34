"""Exact moments of the softmax of independent Gaussian logits, at any number of classes."""

from __future__ import annotations

from functools import lru_cache
from math import lgamma

import numpy as np

from ...measure import Array

Factor = tuple[int, int]

_REACH = 10.0  # standard deviations kept of a Gaussian: the rest weighs 1e-23
_STEP = 0.3  # the integrands are analytic in a strip of half-width π/2, so this leaves an error near e^(-π²/0.3)


class SoftmaxMoments:
    """E[Π_f Σ_k x_k^u r_k^q] for r = softmax(τ x), x ~ N(0, I_C), one pair f = (u, q) per factor, q >= 1.

    Deterministic, to about 12 digits for any C: with K the sum of the q's, 1/(Σ e^y)^K is a Laplace integral over
    t = e^s, inside which the classes are independent. Cost: one table of some 10^5 exponentials per instance.
    """

    def __init__(self, classes: int, scale: float) -> None:
        self.classes = classes
        spread = _REACH * scale
        middle = -np.log(classes)
        self._s = np.arange(middle - spread - 36.0, middle + spread + 6.0, _STEP)
        step = min(0.4, _STEP / max(scale, 1e-300))
        self._x = np.arange(-_REACH, _REACH + step, step)
        weights = step * np.exp(-0.5 * self._x**2) / np.sqrt(2 * np.pi)
        self._weights = weights / weights.sum()
        self._tilt = np.exp(self._s[:, None] + scale * self._x)
        self._damping = np.exp(-self._tilt)
        laplace = self._damping @ self._weights
        missing = -np.expm1(-self._tilt) @ self._weights
        # Near one, log L is only accurate through 1 - L; near zero, only through L.
        with np.errstate(divide="ignore"):
            self._log_laplace = np.where(missing < 0.5, np.log1p(-np.minimum(missing, 0.5)), np.log(laplace))
        self._tables: dict[Factor, Array] = {}

    def expect(self, *factors: Factor) -> float:
        """The expectation of the product of the factors."""
        total = 0.0
        for partition in set_partitions(len(factors)):
            groups = [(sum(factors[f][0] for f in block), sum(factors[f][1] for f in block)) for block in partition]
            total += self.expect_distinct(*groups)
        return total

    def expect_distinct(self, *factors: Factor) -> float:
        """The same with the sums running over distinct classes: Σ_{k != l != ...}."""
        count = len(factors)
        ways = float(np.prod([max(self.classes - k, 0) for k in range(count)], dtype=np.float64))
        if ways == 0.0:
            return 0.0
        integrand = np.exp((self.classes - count) * self._log_laplace)
        for factor in factors:
            integrand = integrand * self._table(factor)
        return ways * float(integrand.sum()) * _STEP * float(np.exp(-lgamma(sum(q for _, q in factors))))

    def _table(self, factor: Factor) -> Array:
        """E[x^u (t e^y)^q exp(-t e^y)] on the grid of t."""
        if factor not in self._tables:
            u, q = factor
            self._tables[factor] = (self._tilt**q * self._damping) @ (self._x**u * self._weights)
        return self._tables[factor]


@lru_cache
def set_partitions(size: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """All ways to split range(size) into unordered groups."""
    if size == 0:
        return ((),)
    grown = []
    for partition in set_partitions(size - 1):
        grown.append((*partition, (size - 1,)))
        for place, block in enumerate(partition):
            grown.append((*partition[:place], (*block, size - 1), *partition[place + 1 :]))
    return tuple(grown)
