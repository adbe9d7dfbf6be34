"""Moments of the weights that a softmax network gives its examples in the hidden-layer Hessian.

The block (i, j) is (1/N) X diag(η) X^T with η = 1{a_i, a_j > 0} ∂²φ/∂a_i ∂a_j, φ(a) = log Σ_k exp(v_k·a), a = σ(W x).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ...measure import Array
from ...rng import Rng
from .logit_pairs import LogitPair, Order
from .overlaps import RectifiedPairs, controlled_mean, overlap_moments
from .pair_table import interpolate_pairs
from .softmax_moments import SoftmaxMoments

MeanAndError = tuple[float, float]
Terms = dict[tuple[int, int, Order], float]

_RADII = 40
_FARTHEST = 10.5  # |σ(z)| beyond it has probability 1e-20 at the widths where the tail matters
_CONTROLS = (-1.0, 0.0, 1.0)


@lru_cache(maxsize=64)
def one_example(classes: int, hidden: int) -> tuple[float, float]:
    """E[η_ii²] and E[η_ij²]: exact, by one integral over the length of a (its direction is uniform and independent)."""
    nodes, weights = np.polynomial.legendre.leggauss(_RADII)
    radius, weights = 0.5 * _FARTHEST * (nodes + 1.0), 0.5 * _FARTHEST * weights
    moments = np.array([_softmax_statistics(SoftmaxMoments(classes, r / np.sqrt(hidden))) for r in radius])
    square, mixed, trace, linear, quadratic = moments.T

    def average(required: int, integrand: Callable[[int], Array]) -> float:
        total = 0.0
        for others in range(hidden - required + 1):
            active = required + others
            density = np.exp((active - 1) * np.log(radius) - 0.5 * radius**2 - gammaln(active / 2)) * 2 ** (
                1 - active / 2
            )
            share = comb(hidden - required, others) * 0.5**hidden
            total += share * float(weights @ (density * integrand(active)))
        return total / hidden**2

    def diagonal(active: int) -> Array:
        u, uu = 1 / active, 3 / (active * (active + 2))
        mean = uu * square + 2 * (u - uu) * mixed + (1 - 2 * u + uu) * trace
        return np.asarray(mean + 4 * (u - uu) * linear + 2 * (1 - 2 * u + uu) * quadratic)

    def off_diagonal(active: int) -> Array:
        u, uv = 1 / active, 1 / (active * (active + 2))
        mean = uv * (square - 2 * mixed + trace)
        return np.asarray(mean + (2 * u - 4 * uv) * linear + (1 - 2 * u + 2 * uv) * quadratic)

    return average(1, diagonal), average(2, off_diagonal)


@lru_cache(maxsize=64)
def two_examples(classes: int, hidden: int, draws: int, rng: Rng) -> tuple[MeanAndError, MeanAndError]:
    """E[η_ii η'_ii] and E[η_ij η'_ij] of two examples under the same output weights, with standard errors."""
    pairs = RectifiedPairs.draw(hidden, 1.0, draws, rng)
    same, single = _unit_derivative(2, 2), _unit_derivative(1, 1)
    orders = sorted({o for _, _, o in same} | {_add(o, p) for _, _, o in single for _, _, p in single})
    mirror = np.array([orders.index((beta, alpha, kappa)) for alpha, beta, kappa in orders])

    def measure(pair: LogitPair) -> Array:
        return np.array([pair.derivative(order) for order in orders])

    table = interpolate_pairs(classes, measure, mirror, pairs.coordinates)
    both = (pairs.a > 0) & (pairs.b > 0)
    units = {key: both * pairs.a ** key[0] * pairs.b ** key[1] for key in same | single}
    sums = {key: value.sum(1) for key, value in units.items()}

    diagonal = sum(c * sums[key] * table[:, orders.index(key[2])] for key, c in same.items()) / hidden
    off_diagonal = np.zeros(draws)
    for left, c in single.items():
        for right, d in single.items():
            polynomial = sums[left] * sums[right] - (units[left] * units[right]).sum(1)
            off_diagonal += c * d * polynomial * table[:, orders.index(_add(left[2], right[2]))]
    off_diagonal /= hidden * (hidden - 1)

    scale = pairs.weights / hidden**2
    controls, means = _controls(pairs, both, hidden)
    return (
        controlled_mean(scale * diagonal, scale[:, None] * controls[0], means[0] / hidden**2),
        controlled_mean(scale * off_diagonal, scale[:, None] * controls[1], means[1] / hidden**2),
    )


def _softmax_statistics(softmax: SoftmaxMoments) -> tuple[float, float, float, float, float]:
    """E of B², B T, T², Σ r²(x - x̄)² and ||R||²: R = diag(r) - r r^T, B = x^T R x, T = tr R, for logits τ x."""
    e = softmax.expect
    spread = e((1, 1), (1, 1), (0, 2))
    return (
        e((2, 1), (2, 1)) - 2 * e((2, 1), (1, 1), (1, 1)) + e((1, 1), (1, 1), (1, 1), (1, 1)),
        e((2, 1)) - e((1, 1), (1, 1)) - e((2, 1), (0, 2)) + spread,
        1 - 2 * e((0, 2)) + e((0, 2), (0, 2)),
        e((2, 2)) - 2 * e((1, 1), (1, 2)) + spread,
        e((0, 2)) - 2 * e((0, 3)) + e((0, 2), (0, 2)),
    )


def _unit_derivative(first: int, second: int) -> Terms:
    """∂_a^first ∂_b^second of a function of (A, B, ρ) = (Σ a², Σ b², Σ a b): {(power of a, of b, order): coefficient}."""
    terms: Terms = {(0, 0, (0, 0, 0)): 1.0}
    for variable in [0] * first + [1] * second:
        grown: Terms = {}
        for (p, q, order), c in terms.items():
            powers = (p, q)
            for step, change, factor in (
                (-1, (0, 0, 0), powers[variable]),
                (1, (1, 0, 0) if variable == 0 else (0, 1, 0), 2),
            ):
                moved = (p + step, q) if variable == 0 else (p, q + step)
                key = (*moved, _add(order, change))
                grown[key] = grown.get(key, 0.0) + c * factor
            other = (p, q + 1) if variable == 0 else (p + 1, q)
            key = (*other, _add(order, (0, 0, 1)))
            grown[key] = grown.get(key, 0.0) + c
        terms = {key: c for key, c in grown.items() if c}
    return terms


def _add(left: Order, right: Order) -> Order:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]


def _controls(pairs: RectifiedPairs, both: NDArray[np.bool_], hidden: int) -> tuple[list[Array], list[Array]]:
    """What the integrands look like under few and many classes, with exact means: (n, 3) each, diagonal and not."""
    controls: list[list[Array]] = [[], []]
    means: list[list[float]] = [[], []]
    for kappa in _CONTROLS:
        zeroth, first, _ = overlap_moments(kappa / hidden)
        growth = np.exp(kappa * pairs.overlap)
        unit = both * (1 + kappa * pairs.a * pairs.b)
        controls[0].append(both.mean(1) * growth)
        controls[1].append((unit.sum(1) ** 2 - (unit**2).sum(1)) / (hidden * (hidden - 1)) * growth)
        means[0].append(zeroth * (0.75 + zeroth) ** (hidden - 1))
        means[1].append((zeroth + kappa * first / hidden) ** 2 * (0.75 + zeroth) ** (hidden - 2))
    return [np.stack(c, axis=1) for c in controls], [np.array(v) for v in means]
