"""Derivatives of E[φ(y) φ(y')], φ = log Σ_k exp y_k, over two correlated Gaussian vectors of logits."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...measure import Array
from .softmax_moments import set_partitions

Order = tuple[int, int, int]

_TERMS = 120  # of Mehler's expansion; the coefficients of analytic functions fall faster than any power
_STEP = 0.35
_X = np.arange(-130, 131) * 0.1
_HIGHEST = 6  # derivatives of exp(-e^v) that the fourth derivatives of the covariance call for


class LogitMarginal:
    """Hermite coefficients of v -> ∂^j exp(-e^v) at v = s + τ x, on a grid of s that resolves Σ_k exp(τ x_k).

    A rise of s at the far left costs nothing but an exponential tail, so there the grid is stretched by e^(-s).
    """

    def __init__(self, classes: int, scale: float) -> None:
        self.scale = scale
        start = -np.log(classes) - 0.5 * scale**2 - 3.0 * scale
        stop = -np.log(classes) + 8.0 * scale / np.sqrt(classes) + 3.7
        reach = max(3.0, 4.0 * scale - 0.5 * scale**2)
        grid = np.arange(start - reach, stop + _STEP, _STEP)
        stretch = np.exp(start - grid)
        self.weights: Array = _STEP * (1.0 + stretch)
        tilt = np.exp((grid - stretch)[:, None] + scale * _X)
        damped = np.exp(-tilt)
        powers = [damped * tilt**q for q in range(_HIGHEST + 1)]
        # Order 0 is kept as 1 - exp(-e^v), which stays accurate where the exponential is almost one.
        orders = [-np.expm1(-tilt)] + [sum(c * p for c, p in zip(row, powers, strict=False)) for row in _polynomials()]
        self.coefficients: list[Array] = [np.asarray(values @ _hermite_weights()) for values in orders]


class LogitPair:
    """∂_A^α ∂_B^β ∂_ρ^κ E[φ(y) φ(y')] for C independent pairs (y_k, y'_k) ~ N(0, [[A, ρ], [ρ, B]]).

    φ is an integral over s of 1 - exp(-e^s Σ e^y), so that the expectation is a double integral of M(s, s')^C with M
    one Gaussian expectation per class. Price's theorem turns its derivatives into those of exp(-e^v), Mehler's formula
    into powers of the correlation c = ρ / sqrt(A B). Costs about 2 ms for a dozen derivatives, whatever C is.
    """

    def __init__(self, classes: int, first: LogitMarginal, second: LogitMarginal, correlation: float) -> None:
        self.classes = classes
        self._second = second.coefficients
        power = correlation ** np.arange(_TERMS)
        self._first = [power * c for c in first.coefficients]
        self._mixed: dict[tuple[int, int], Array] = {}
        missing = first.coefficients[0][:, :1] + second.coefficients[0][:, 0] - self._first[0] @ self._second[0].T
        log_mass = np.log1p(-np.minimum(missing, np.nextafter(1.0, 0.0)))
        weights = np.multiply.outer(first.weights, second.weights)
        ways = np.cumprod([float(max(classes - k, 0)) for k in range(4)])
        self._envelope = [weights * ways[b] * np.exp(max(classes - b - 1, 0) * log_mass) for b in range(4)]

    def derivative(self, order: Order) -> float:
        """The derivative of order (α, β, κ) in (A, B, ρ); at least one in each of y and y', at most four in all."""
        return sum(self.parts(order))

    def parts(self, order: Order) -> list[float]:
        """The same by number of distinct classes that the derivatives fall on: 1, 2, 3, 4."""
        alpha, beta, _ = order
        totals = [0.0] * 4
        for blocks, multiplicity in _block_partitions(order):
            product = self._envelope[len(blocks) - 1]
            for block in blocks:
                product = product * self._expectation(block)
            totals[len(blocks) - 1] += multiplicity * 0.5 ** (alpha + beta) * float(product.sum())
        return totals

    def _expectation(self, orders: tuple[int, int]) -> Array:
        """E[∂^j exp(-e^(s+y)) ∂^l exp(-e^(s'+y'))] for every s, s'."""
        if orders not in self._mixed:
            j, l = orders
            mixed = self._first[j] @ self._second[l].T
            if j == 0:
                mixed = self._second[l][:, 0] - mixed
            elif l == 0:
                mixed = self._first[j][:, :1] - mixed
            self._mixed[orders] = mixed
        return self._mixed[orders]


@lru_cache
def _block_partitions(order: Order) -> tuple[tuple[tuple[tuple[int, int], ...], int], ...]:
    """How the derivatives group by class: the (y, y') orders in each group, and how many groupings look so."""
    alpha, beta, kappa = order
    steps = [(2, 0)] * alpha + [(0, 2)] * beta + [(1, 1)] * kappa
    counts: dict[tuple[tuple[int, int], ...], int] = {}
    for partition in set_partitions(len(steps)):
        groups = sorted((sum(steps[i][0] for i in block), sum(steps[i][1] for i in block)) for block in partition)
        counts[tuple(groups)] = counts.get(tuple(groups), 0) + 1
    return tuple(counts.items())


@lru_cache
def _polynomials() -> tuple[tuple[float, ...], ...]:
    """∂^j exp(-e^v) = exp(-e^v) Σ_q c_jq e^(qv): the coefficients of j = 1, 2, ..."""
    rows = []
    row = [1.0] + [0.0] * _HIGHEST
    for _ in range(_HIGHEST):
        row = [q * row[q] - (row[q - 1] if q else 0.0) for q in range(_HIGHEST + 1)]
        rows.append(tuple(row))
    return tuple(rows)


@lru_cache
def _hermite_weights() -> Array:
    """Columns h_n(x) φ(x) dx of the orthonormal Hermite polynomials."""
    basis = np.empty((_TERMS, _X.size))
    basis[0], basis[1] = 1.0, _X
    for n in range(1, _TERMS - 1):
        basis[n + 1] = (_X * basis[n] - np.sqrt(n) * basis[n - 1]) / np.sqrt(n + 1)
    density = np.exp(-0.5 * _X**2)
    return np.asarray((basis * (density / density.sum())).T)
