"""The limiting spectra of the Hessian's blocks at random initialisation: laws with density, edges, cdf and moments.

Every block is (1/N) X diag(g) X^T, and g becomes independent of X as the input dimension grows, so each spectrum is a
`GeneralisedMarchenkoPastur` law of the limiting g. Same setting as `block_limits`. Reference: Dong, Zhang, Yao & Sun
(2025), Propositions 2, 4 and 6, with the sign of the off-diagonal blocks restored (docs/errata/dong.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ...arguments import is_count, real_array, shown
from ...errors import refuse
from ...measure import Array, AtomicMeasure
from ...rng import Rng
from ..separable.law import GeneralisedMarchenkoPastur
from ..separable.population import Complex, Population
from .limits import check_setting
from .log_sum import log_sum_rule

_REACH = 9.0
_STEP = 0.06
_DEPTH = 0.5  # how far the contours leave the real axis; the softmax is analytic up to π
_SAMPLES = 2**14


def linear_cross_entropy(
    ratio: float, classes: int, block: Literal["diagonal", "off_diagonal"]
) -> GeneralisedMarchenkoPastur:
    """s(z) = 1 / (E[g/(1 + γ s g)] - z), g = p_i(1 - p_i) or -p_i p_j, p = softmax of C standard normals.

    The population is continuous: quadrature runs on a contour where Im g < 0, so densities are smooth to rounding and
    the edges are those of the limit. At large C the support ends near ±γ/4, far beyond the eigenvalues of any matrix of
    practical size: once in e^(log² C) examples one is undecided between two classes. For γ > 1 the bulk reaches down to
    the atom at zero; density and cdf stay fast there, `quantile` takes many seconds.

    >>> law = linear_cross_entropy(0.5, 10, "diagonal")
    >>> round(law.moment(1), 6), [round(edge, 4) for edge in law.edges]
    (0.080531, [0.0044, 0.3139])
    """
    check_setting(ratio, classes)
    if block not in ("diagonal", "off_diagonal"):
        refuse('block must be "diagonal" or "off_diagonal"', f"{block!r}", "Diagonal blocks belong to one class.")
    population = _own_class(classes) if block == "diagonal" or classes == 2 else _two_classes(classes)
    if block == "off_diagonal" and classes == 2:
        population = _negated(population)
    return _OneSided(population, None, ratio)


def hidden_cross_entropy(
    ratio: float, output_weights: ArrayLike, first: int, second: int
) -> GeneralisedMarchenkoPastur:
    """The law of block (i, j) of hidden units for given V (C x m): g = 1{z_i, z_j > 0} Cov_p(V_ci, V_cj), p = softmax(V σ(z)).

    It stays random with V at any C, so it is asked for one network. The population is 16 384 quasi-random draws of z,
    averaged in groups: the cdf is good to plotting accuracy, while the thin tails break up into small islands whose
    edges mean nothing.
    """
    from scipy.stats import qmc  # takes longer to load than all else that is used here

    v = _output_weights(ratio, output_weights, first, second)
    uniform = qmc.Sobol(v.shape[1], scramble=True, seed=Rng().child("hidden_cross_entropy").numpy()).random(_SAMPLES)
    active = np.maximum(ndtri(uniform), 0.0)
    weights = np.concatenate([_covariances(part, v, first, second) for part in np.array_split(active, 64)])
    live = np.sort(weights[(active[:, first] > 0) & (active[:, second] > 0)])
    groups = np.array_split(live, 512)
    nodes = np.append([group.mean() for group in groups], 0.0)
    shares = np.append([group.size for group in groups], _SAMPLES - live.size)
    return GeneralisedMarchenkoPastur(AtomicMeasure.of(nodes, shares), None, ratio)


def hidden_mse(ratio: float, output_weights: ArrayLike, first: int, second: int) -> GeneralisedMarchenkoPastur:
    """The law of block (i, j) of hidden units for given V: 2 (V^T V)_ij times Marchenko-Pastur of the shared examples.

    Half of the examples pass one unit, a quarter pass two, so the ratios are 2γ and 4γ.
    """
    v = _output_weights(ratio, output_weights, first, second)
    share = 0.5 if first == second else 0.25
    population = AtomicMeasure.of([0.0, 2.0 * float(v[:, first] @ v[:, second])], [1.0 - share, share])
    return GeneralisedMarchenkoPastur(population, None, ratio)


@dataclass(frozen=True, eq=False)
class _OneSided(GeneralisedMarchenkoPastur):
    """A law on one side of zero whose bulk reaches its own atom at zero (γ > 1), where the two cannot be told apart."""

    def density(self, x: ArrayLike, width: float = 0.0) -> Array:
        # Far tails lie below rounding, which the contour leaves with either sign.
        return np.maximum(super().density(x, width), 0.0)

    def cdf(self, x: ArrayLike) -> Array:
        points = np.asarray(x, dtype=np.float64)
        out = super().cdf(points)
        if not self.mass_at_zero:
            return out
        below = 1.0 - self.mass_at_zero if self.mean < 0 else 0.0
        at_zero = np.where(points < 0, below, below + self.mass_at_zero)
        return np.where(np.abs(points) < 1e-12 * self._scale, at_zero, out)


def _own_class(classes: int) -> Population:
    """g = 1/(4 cosh²(u/2)), u = z - ℓ the logit of p; g is even, so the contour bends by i tanh u."""
    nodes, weights = log_sum_rule(classes - 1)
    line = np.arange(-nodes.max() - _REACH, -nodes.min() + _REACH, _STEP)
    u = line + 1j * _DEPTH * np.tanh(line)
    turn = np.asarray(1.0 + 1j * _DEPTH / np.cosh(line) ** 2, dtype=np.complex128)
    density = np.exp(-0.5 * (u[:, None] + nodes) ** 2) @ weights / np.sqrt(2 * np.pi)
    g = np.asarray(0.25 / np.cosh(0.5 * u) ** 2, dtype=np.complex128)
    return _population(g, _STEP * density * turn, (0.0, 0.25))


def _two_classes(classes: int) -> Population:
    """g = -(2 cosh δ + e^w)^(-2), δ half the difference of two logits, w = ℓ minus their mean; w moves by -i."""
    nodes, weights = log_sum_rule(classes - 2)
    delta, delta_weights = np.polynomial.hermite_e.hermegauss(40)
    delta, delta_weights = delta[20:] / np.sqrt(2), 2 * delta_weights[20:] / delta_weights.sum()
    step = 1.5 * _STEP
    reach = _REACH / np.sqrt(2)
    w = np.arange(nodes.min() - reach, nodes.max() + reach, step) - 1j * _DEPTH
    density = np.exp(-((w[:, None] - nodes) ** 2)) @ weights / np.sqrt(np.pi)
    g = np.asarray(-((2 * np.cosh(delta)[:, None] + np.exp(w)) ** -2.0), dtype=np.complex128)
    return _population(g.ravel(), (delta_weights[:, None] * (step * density)).ravel(), (-0.25, 0.0))


def _population(nodes: Complex, weights: Complex, interval: tuple[float, float]) -> Population:
    keep = np.abs(weights) > 1e-18
    return Population(nodes[keep], weights[keep] / weights[keep].sum(), (interval,), 0.0, False)


def _negated(population: Population) -> Population:
    """The law of -g: reflecting turns the contour upside down, so it is conjugated back."""
    (low, high) = population.support_intervals[0]
    return Population(-population.nodes.conj(), population.weights.conj(), ((-high, -low),), 0.0, False)


def _covariances(active: Array, v: Array, first: int, second: int) -> Array:
    logits = active @ v.T
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return np.asarray(p @ (v[:, first] * v[:, second]) - (p @ v[:, first]) * (p @ v[:, second]))


def _output_weights(ratio: float, output_weights: ArrayLike, first: int, second: int) -> Array:
    v = real_array("output_weights, a finite C x m matrix,", output_weights, "Pass the last layer's weight.")
    if v.ndim != 2 or not np.isfinite(v).all():
        refuse("output_weights must be a finite C x m matrix", f"shape {v.shape}", "Pass the last layer's weight.")
    check_setting(ratio, v.shape[0], v.shape[1])
    if not all(is_count(unit, 0) and unit < v.shape[1] for unit in (first, second)):
        refuse(
            f"units must lie in 0 .. {v.shape[1] - 1}",
            f"{shown(first)} and {shown(second)}",
            "Count hidden units from zero.",
        )
    return v
