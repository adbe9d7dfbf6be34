"""Which of our laws explains a measured spectrum: fit each family to the bulk, rank them, list what sticks out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import least_squares

from ...arguments import is_count, shown
from ...errors import refuse
from ...measure import AtomicMeasure, Measure
from ...result import Result
from ..separable.gaussian_grid import gaussian, grid
from ..separable.law import GeneralisedMarchenkoPastur
from ..separable.population import Population, Real
from .marchenko_pastur import MarchenkoPastur
from .with_zeros import LawWithZeros

_LEVELS = (np.arange(48) + 0.5) / 48


@dataclass(frozen=True, eq=False)
class Fit(Result):
    """One family fitted to a spectrum: the law (with the measured share of zeros), its distance, what it leaves out.

    `theta`, `unit` and `zeros` say in the family's own coordinates which law it is, so that a fit fits in a file.
    """

    family: str
    parameters: dict[str, float]
    theta: Real
    unit: float
    zeros: float
    kolmogorov: float  # over the bulk: outliers removed from the measurement
    wasserstein: float  # the same, in units of the bulk's root mean square
    outliers: Real  # atoms outside the law's support by more than the finite-size margin
    outlier_mass: float  # their share of the spectrum without its zeros
    alternatives: tuple[Fit, ...] = ()  # the other families, best first; filled in the answer of `fit`

    @cached_property
    def law(self) -> LawWithZeros:
        """The fitted law."""
        family = next(family for family in _families() if family.name == self.family)
        return LawWithZeros(self.zeros, _rescaled(family.build(self.theta), self.unit))


@dataclass(frozen=True)
class _Family:
    """A law of unit sign and mean about one, from unconstrained parameters; `read` names them."""

    name: str
    build: Callable[[Real], GeneralisedMarchenkoPastur]
    starts: Callable[[float], list[list[float]]]  # from the variance of the bulk
    read: Callable[[Real, float], dict[str, float]]


def fit(measure: AtomicMeasure, size: int | None = None) -> Fit:
    """argmin over families and parameters of Σ (F_law(x_q) - q)²: the best law, the others in `.alternatives`.

    Families, simplest first: "marchenko_pastur" (ratio, scale), "log_normal" (spread-out g, unbounded support),
    "two_scales" (two covariance levels), "signed" (g of both signs). A richer law wins only if its score, the
    Kolmogorov distance over the bulk plus the share of outliers, is better by a quarter and by more than the
    fluctuation of a random matrix of this size. `size`: the matrix dimension behind the measure (Lanczos measures have
    fewer atoms); it sets the finite-size margins. Exact zeros become the law's share of zeros. Takes seconds.
    """
    if not isinstance(measure, AtomicMeasure):
        refuse("a fit needs an atomic measure", shown(measure), "Use hs.AtomicMeasure.of(eigenvalues).")
    if not (size is None or is_count(size, 1)):
        refuse("size must be an integer >= 1", shown(size), "Pass the dimension of the matrix, or leave it out.")
    values, weights = measure.nodes, measure.weights
    top = float(np.abs(values).max())
    if not top > 0 or values.size < 8:
        refuse("a fit needs at least eight atoms that are not all zero", f"{values.size} atoms", "Pass more of it.")
    zero = np.abs(values) <= 1e-10 * top
    share = float(weights[zero].sum())
    if share >= 1.0 or (~zero).sum() < 8:
        refuse("a fit needs at least eight atoms besides zeros", f"{int((~zero).sum())}", "Pass more of the spectrum.")
    live = AtomicMeasure.of(values[~zero], weights[~zero])
    count = max(8.0, (size or values.size) * (1.0 - share))
    fits = [f for f in (_fit_family(family, live, share, count) for family in _families()) if f is not None]
    if not fits:
        refuse("some law must hold eight atoms", "a spectrum of isolated atoms", "Pass more of it.")
    scores = [f.kolmogorov + f.outlier_mass for f in fits]
    best = 0
    for other in range(1, len(fits)):
        if scores[other] < scores[best] - max(0.25 * scores[best], 1.5 / count):
            best = other
    rest = tuple(fits[i] for i in np.argsort(scores) if i != best)
    return replace(fits[best], alternatives=rest)


def _fit_family(family: _Family, live: AtomicMeasure, share: float, count: float) -> Fit | None:
    bulk, start = live, None
    # Outliers are only known once there is a law, and the law only once they are gone: a few rounds settle it.
    for _ in range(4):
        unit = float(np.sign(bulk.mean) or 1.0) * float(np.quantile(np.abs(bulk.quantile(_LEVELS)), 0.5))
        scaled = AtomicMeasure.of(bulk.nodes / unit, bulk.weights)
        starts = family.starts(float(np.clip(scaled.variance, 0.02, 5.0))) if start is None else [start]
        trials = [_least_squares(family, scaled, np.array(theta, dtype=np.float64)) for theta in starts]
        theta, _ = min(trials, key=lambda trial: trial[1])
        start = list(theta)
        law = _rescaled(family.build(theta), unit)
        inside = _near_support(law, live.nodes, count)
        if inside.sum() < 8:
            return None
        settled = int(inside.sum()) == bulk.nodes.size
        bulk = AtomicMeasure.of(live.nodes[inside], live.weights[inside])
        if settled:
            break
    rest: Measure = law if law.mass_at_zero == 0 else AtomicMeasure.of(_without_zeros(law))
    return Fit(
        family.name,
        family.read(theta, unit),
        theta,
        unit,
        share,
        bulk.kolmogorov(rest),
        bulk.wasserstein(rest, points=801) / float(np.sqrt(bulk.moment(2))),
        live.nodes[~inside],
        float(live.weights[~inside].sum()),
    )


def _least_squares(family: _Family, bulk: AtomicMeasure, start: Real) -> tuple[Real, float]:
    """Match cdfs smoothed by the same Cauchy law: differentiable in the parameters, no support to compute."""
    points = np.unique(bulk.quantile(_LEVELS))
    width = 0.05 * float(np.sqrt(bulk.variance))
    target = 0.5 + np.arctan((points[:, None] - bulk.nodes) / width) @ bulk.weights / np.pi

    def miss(theta: Real) -> Real:
        law = family.build(np.clip(theta, -12.0, 12.0))
        zeros = law.mass_at_zero
        smooth = law.smooth_cdf(points, width) - zeros * (0.5 + np.arctan(points / width) / np.pi)
        return np.asarray(smooth / max(1.0 - zeros, 1e-9) - target)

    found = least_squares(miss, start, max_nfev=40, xtol=1e-7, ftol=1e-7, diff_step=1e-5)
    return np.clip(found.x, -12.0, 12.0), float(found.cost)


def _rescaled(law: GeneralisedMarchenkoPastur, unit: float) -> GeneralisedMarchenkoPastur:
    """The law of unit·λ: g carries the factor (a negative one mirrors contours across the axis)."""
    if isinstance(law, MarchenkoPastur):
        return MarchenkoPastur(law.ratio, unit * law.scale)
    g = law.population_g
    if isinstance(g, AtomicMeasure):
        return GeneralisedMarchenkoPastur(AtomicMeasure.of(unit * g.nodes, g.weights), law.population_c, law.ratio)
    nodes, weights = (unit * g.nodes, g.weights) if unit > 0 else (unit * g.nodes.conj(), g.weights.conj())
    ends = tuple(sorted(unit * end for end in g.support_intervals[0]))
    return GeneralisedMarchenkoPastur(
        Population(nodes, weights, ((ends[0], ends[1]),), g.zero_mass, g.atomic), law.population_c, law.ratio
    )


def _without_zeros(law: GeneralisedMarchenkoPastur) -> Real:
    levels = (np.arange(1001) + 0.5) / 1001
    below, zero = float(law.cdf(np.nextafter(0.0, -1.0))), law.mass_at_zero
    shrunk = levels * (1.0 - zero)
    return law.quantile(np.where(shrunk > below, shrunk + zero, shrunk))


def _near_support(law: GeneralisedMarchenkoPastur, x: Real, count: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Atoms in a bulk, or beyond an edge by less than five widths of its finite-size fluctuation, O(count^(-2/3))."""
    inside = np.zeros(x.shape, dtype=bool)
    for left, right in law.support:
        ends = [
            end if np.isfinite(end) else float(law.quantile(q))
            for end, q in ((left, 0.1 / count), (right, 1 - 0.1 / count))
        ]
        margin = 5.0 * (ends[1] - ends[0]) / 4.0 * count ** (-2.0 / 3.0)
        inside |= (x >= ends[0] - margin) & (x <= ends[1] + margin)
    return np.asarray(inside)


def _families() -> list[_Family]:
    exp = np.exp
    return [
        _Family(
            "marchenko_pastur",
            lambda v: MarchenkoPastur(float(exp(v[0])), float(exp(v[1]))),
            lambda s: [[np.log(s), 0.0]],
            lambda v, u: {"ratio": float(exp(v[0])), "scale": float(u * exp(v[1]))},
        ),
        _Family(
            "log_normal",
            lambda v: GeneralisedMarchenkoPastur(
                log_normal(float(v[1]), float(exp(min(v[2], 1.5)))), None, float(exp(v[0]))
            ),
            lambda s: [[np.log(0.5 * s), 0.0, np.log(0.5)]],
            lambda v, u: {
                "ratio": float(exp(v[0])),
                "median": float(u * exp(v[1])),
                "log_std": float(exp(min(v[2], 1.5))),
            },
        ),
        _Family(
            "two_scales",
            lambda v: GeneralisedMarchenkoPastur(
                AtomicMeasure.of([exp(v[1])]), _two(1.0, 1.0 + exp(v[2]), v[3]), float(exp(v[0]))
            ),
            lambda s: [[np.log(0.5 * s), -0.4, 0.0, 0.0], [np.log(0.05 * s), -1.0, 1.5, 0.0]],
            lambda v, u: {
                "ratio": float(exp(v[0])),
                "low": float(u * exp(v[1])),
                "high": float(u * exp(v[1]) * (1 + exp(v[2]))),
                "share_high": _logistic(v[3]),
            },
        ),
        _Family(
            "signed",
            lambda v: GeneralisedMarchenkoPastur(_two(-exp(v[1]), exp(v[2]), v[3]), None, float(exp(v[0]))),
            lambda s: [[-0.4, 0.5, 0.5, 0.7], [0.3, 0.0, 0.3, 0.7], [np.log(0.2 * s), -2.0, 0.3, 2.0]],
            lambda v, u: {
                "ratio": float(exp(v[0])),
                "negative": float(-u * exp(v[1])),
                "positive": float(u * exp(v[2])),
                "share_positive": _logistic(v[3]),
            },
        ),
    ]


def _logistic(x: float) -> float:
    return float(0.5 * (1.0 + np.tanh(0.5 * x)))


def _two(low: float, high: float, logit: float) -> AtomicMeasure:
    share = _logistic(logit)
    return AtomicMeasure.of([low, high], [1.0 - share, share])


def log_normal(log_median: float, log_std: float) -> Population:
    """g = e^(log_median + log_std N): unbounded support, on the contour N - iκ below the axis."""
    depth = min(0.5, 1.0 / log_std)
    points, cell = grid(1, depth / 4.0)
    z = points - 1j * depth
    nodes = np.exp(log_median + log_std * z[:, 0])
    return Population(nodes, cell * gaussian(z), ((0.0, np.inf),), 0.0, False)
