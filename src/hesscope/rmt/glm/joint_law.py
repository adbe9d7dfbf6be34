"""Everything the limit needs of the joint law of (g, z): nodes g_k with their second moments of (1, z)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import refuse
from ...measure import AtomicMeasure
from ...rng import Rng
from ..separable.gaussian_grid import REACH, gaussian, grid, line
from ..separable.outside import allowed_arcs
from ..separable.population import Population, Real
from . import contours
from .frame import Frame
from .losses import Loss, Response

Values = NDArray[Any]
_TARGET = {0: 0.0, 1: 1e-13, 2: 1e-10}  # by the number of dimensions integrated
_MOST_NODES = 60_000
_PROBE = np.array([1j])
_FEW = 64  # values of g: true atoms
_COARSE = 1e-5  # an error that a plot would not show, but a table would


@dataclass(frozen=True, eq=False)
class Expectation:
    """E[f(g) ([1; z][1; z]ᵀ - diag(0, I))] = Σ_k f(nodes_k) moments_k, with an error estimate for f = g/(1 + gδ)."""

    nodes: Values
    moments: Values
    range: tuple[float, float]
    error: float
    kind: str  # "quadrature" or "sampling"; the error of sampling is one standard error

    @property
    def population(self) -> Population:
        """The law of g alone."""
        weights = self.moments[:, 0, 0]
        if np.iscomplexobj(self.nodes):
            return Population(self.nodes, weights, (self.range,), 0.0, False)
        # A loss with few values has true atoms; an unbounded one on real nodes is only known at its nodes.
        if np.unique(self.nodes).size <= _FEW or np.isinf(self.range).any():
            return Population.atoms(AtomicMeasure.of(self.nodes, weights), "the law of g")
        live = self.nodes != 0
        return Population(self.nodes[live], weights[live], (self.range,), float(weights[~live].sum()), False)

    def weighted(self, factor: Values) -> Real:
        """Σ_k factor_k moments_k, real: for factors that are real-analytic off the support of g."""
        return np.asarray(np.real(np.tensordot(factor, self.moments, axes=([-1], [0]))))


def expectation(loss: Loss, response: Response, frame: Frame, ratio: float, rng: Rng) -> Expectation:
    """Integrate (g, z) by refining the rule until E[g/(1 + gδ)] settles, above the axis and at the edges of the law."""
    if response.outcomes is None and loss.uses_response:
        return _sampled(loss, response, frame, rng)
    coarse, target = _rule(loss, response, frame, 1.0), _TARGET[frame.rank]
    for fineness in (1.6, 2.4, 3.6, 5.4, 8.0):
        fine = _rule(loss, response, frame, fineness)
        error = _disagreement(coarse, fine, ratio)
        if error <= target or fine.nodes.size > _MOST_NODES:
            break
        coarse = fine
    # The coarse rule already meets the target when the two agree: keep the cheaper one.
    best = _checked(replace(coarse if error <= target else fine, error=error))
    if error > _COARSE:
        warnings.warn(
            f"the integral over (y, h) has settled to {error:.0e} only: l'' jumps, or w is long beside the scale on which it "
            "changes. `accuracy` holds this error; smooth l'', scale w down, or simulate.",
            stacklevel=2,
        )
    if np.isinf(best.range).any() and not np.iscomplexobj(best.nodes) and np.unique(best.nodes).size > _FEW:
        warnings.warn(
            "l'' is unbounded here and known at real points only (it is not analytic, or w is long): far out, the law "
            "breaks up at them. Trust its bulk, not its support; or simulate.",
            stacklevel=2,
        )
    return best


def _checked(result: Expectation) -> Expectation:
    if not np.all(np.isfinite(result.nodes)) or not np.all(np.isfinite(result.moments)):
        refuse(
            "the loss must have a finite second derivative wherever (y, h) falls",
            "a value that is not finite",
            "Smooth the loss, or scale w down.",
        )
    size = np.abs(result.nodes) / np.sqrt(np.abs(result.moments[:, 0, 0] @ result.nodes**2) + 1e-300)
    keep = np.abs(result.moments).max(axis=(1, 2)) * np.maximum(1.0, size) ** 3 > 1e-19
    return replace(result, nodes=result.nodes[keep], moments=result.moments[keep])


def _disagreement(one: Expectation, two: Expectation, ratio: float) -> float:
    """The largest difference of E[g/(1 + gδ)(...)] over δ above the axis and the extreme real δ outside the bulk."""
    scale = np.sqrt(abs(one.moments[:, 0, 0] @ one.nodes**2)) + 1e-300
    delta = np.array([0.05j, 0.5j, -1 + 0.5j, 2 + 0.5j, -3 + 1j, 1e-3 + 1e-3j]) / scale
    above = np.abs(_transform(one, delta) - _transform(two, delta)).max() / scale
    population = two.population
    if population.atomic:
        return float(above)
    # Every real δ of the law lies between the ends of these arcs, and the ends are the hardest.
    ends = [arc.at(np.array([0.0, 1.0])) for arc in allowed_arcs(population, ratio)]
    real = np.concatenate([-bottom / top for top, bottom in ends] or [np.zeros(0)])
    values = _transform(two, real[np.isfinite(real)] + 0j)
    edge = np.abs(_transform(one, real[np.isfinite(real)] + 0j) - values).max(initial=0.0)
    return float(max(above, edge / (np.abs(values).max(initial=0.0) + scale)))


def _transform(rule: Expectation, delta: Values) -> Values:
    ratio = rule.nodes / (1.0 + np.multiply.outer(delta, rule.nodes))
    return np.asarray(np.tensordot(ratio, rule.moments, axes=([1], [0])))


def _rule(loss: Loss, response: Response, frame: Frame, fineness: float) -> Expectation:
    if frame.rank == 0:
        h, t = np.array([frame.h_mean]), np.array([frame.t_mean])
        return _joined(_branches(loss, response, h, t, np.ones(1), np.zeros((1, 0))), loss.range)
    if loss.contour == "tanh":
        z, measure = contours.tanh_contour(frame, fineness)
        return _joined(_branches(loss, response, *contours.affine(frame, z), measure, z), _bell_range(loss, frame))
    if loss.contour == "shift" and response.name == "logistic" and frame.h_slope[0]:
        return _joined([_binary_branch(loss, frame, sign, fineness) for sign in (1.0, -1.0)], loss.range)
    bounds = _quadratic_range(frame) if loss.contour == "rotate" and response.name == "phase_retrieval" else None
    if bounds is not None:
        even = frame.h_mean == 0 == frame.t_mean
        z, measure = contours.rotated_contour(frame, fineness, even)
        (g, moments), *_ = _branches(loss, response, *contours.affine(frame, z), measure, z)
        if even:
            moments[:, 0, 1:] = moments[:, 1:, 0] = 0.0
        return _joined([(g, moments)], bounds)
    return _general(loss, response, frame, fineness)


def _branches(
    loss: Loss, response: Response, h: Values, t: Values, measure: Values, z: Values
) -> list[tuple[Values, Values]]:
    """(g, moments) of every outcome of the response at the nodes of one rule."""
    if not loss.uses_response:
        return [(loss.curvature(np.ones_like(h), h), measure[:, None, None] * contours.second_moments(z))]
    assert response.outcomes is not None
    return [
        (loss.curvature(y, h), (measure * chance)[:, None, None] * contours.second_moments(z))
        for y, chance in response.outcomes(t)
    ]


def _joined(parts: list[tuple[Values, Values]], bounds: tuple[float, float]) -> Expectation:
    nodes = np.concatenate([g for g, _ in parts])
    moments = np.concatenate([m for _, m in parts])
    if np.ptp(nodes) == 0:
        return Expectation(np.real(nodes[:1]), np.real(moments.sum(axis=0, keepdims=True)), bounds, 0.0, "quadrature")
    return Expectation(nodes, moments, bounds, 0.0, "quadrature")


def _binary_branch(loss: Loss, frame: Frame, sign: float, fineness: float) -> tuple[Values, Values]:
    """y = `sign`, P(y | t) = 1/(1 + e^(-yt)): z₂ only enters through P, so it is integrated out at each z₁."""
    z1, measure = contours.shift_contour(frame, sign, fineness)
    h = frame.h_mean + z1[:, 0] * frame.h_slope[0]
    lead = frame.t_mean + z1[:, 0] * frame.t_slope[0]
    inner = line(min(0.3, 0.6 / abs(frame.t_slope[1])) / fineness) if frame.rank == 2 else np.zeros(1)
    share = gaussian(inner[:, None]) * (inner[1] - inner[0]) if frame.rank == 2 else np.ones(1)
    t = lead[:, None] + (inner * frame.t_slope[1] if frame.rank == 2 else 0.0)
    chance = 0.5 * (1.0 + np.tanh(0.5 * sign * t)) * share
    size = 1 + frame.rank
    moments = np.empty((h.size, size, size), dtype=np.complex128)
    powers = [chance.sum(axis=1), chance @ inner, chance @ (inner**2 - 1.0)]
    moments[:, :2, :2] = powers[0][:, None, None] * contours.second_moments(z1)
    if frame.rank == 2:
        moments[:, 0, 2] = moments[:, 2, 0] = powers[1]
        moments[:, 1, 2] = moments[:, 2, 1] = powers[1] * z1[:, 0]
        moments[:, 2, 2] = powers[2]
    return loss.curvature(np.full(h.shape, sign), h), measure[:, None, None] * moments


def _bell_range(loss: Loss, frame: Frame) -> tuple[float, float]:
    """The values of a bell-shaped g(h) but for a mass of 1e-17: what lies beyond would only blur the support."""
    ends = frame.h_mean + np.array([-1.0, 1.0]) * REACH * abs(float(frame.h_slope[0]))
    values = loss.curvature(np.ones(2), ends)
    return float(values.min()), loss.range[1] if ends[0] < 0 < ends[1] else float(values.max())


def _quadratic_range(frame: Frame) -> tuple[float, float] | None:
    """The range of 3h² - t² over the plane (bounded on the side where the form is definite); None if degenerate."""
    value, axes, centre = contours.quadratic_form(frame)
    if np.abs(value).min() <= 1e-9 * (frame.h_slope @ frame.h_slope + frame.t_slope @ frame.t_slope):
        return None
    h, t = contours.affine(frame, (axes @ centre)[None, :])
    extreme = float(3.0 * h[0] ** 2 - t[0] ** 2)
    return (-np.inf if value[0] < 0 else extreme, np.inf if value[-1] > 0 else extreme)


def _general(loss: Loss, response: Response, frame: Frame, fineness: float) -> Expectation:
    """Any loss and any response with listed outcomes: real nodes, or a contour where g is unbounded and analytic."""
    points, cell = grid(frame.rank, (0.05 if frame.rank == 1 else 0.18) / fineness)
    measure = cell * gaussian(points)
    parts = _branches(loss, response, *contours.affine(frame, points), measure, points)
    values = np.concatenate([np.broadcast_to(g, measure.shape) for g, _ in parts])
    radius = np.tile(np.sqrt((points**2).sum(axis=1)), len(parts))
    core, all_ = values[radius <= 0.7 * REACH], values
    spread = max(float(np.ptp(core)), 1e-12 * float(np.abs(core).max()))
    low = -np.inf if all_.min() < core.min() - 0.05 * spread else float(all_.min())
    high = np.inf if all_.max() > core.max() + 0.05 * spread else float(all_.max())
    real = _joined(parts, (low, high))
    if np.isfinite([low, high]).all():
        return real
    deformed = _deformed(loss, response, frame, fineness, (low, high))
    # A callable that is not analytic (or not meant for complex numbers) disagrees off the axis: keep the real nodes.
    scale = np.sqrt(abs(real.moments[:, 0, 0] @ real.nodes**2)) + 1e-300
    probe = _PROBE / scale
    if deformed is None or np.abs(_transform(real, probe) - _transform(deformed, probe)).max() > 1e-6 * scale:
        return real
    return deformed


def _deformed(
    loss: Loss, response: Response, frame: Frame, fineness: float, bounds: tuple[float, float]
) -> Expectation | None:
    assert response.outcomes is not None
    parts = []
    try:
        for index in range(len(response.outcomes(np.zeros(1)))):

            def curvature(z: Values, index: int = index) -> Values:
                h, t = contours.affine(frame, z)
                return np.asarray(loss.curvature(response.outcomes(t)[index][0], h))  # type: ignore[misc]

            z, measure = contours.gradient_contour(curvature, frame.rank, fineness, _depth(response, frame))
            parts.append(_branches(loss, response, *contours.affine(frame, z), measure, z)[index])
    except (TypeError, ValueError):
        return None
    result = _joined(parts, bounds)
    return result if np.all(np.isfinite(result.nodes)) else None


def _depth(response: Response, frame: Frame) -> float:
    """How far a contour may leave the real axis: P(y | t) = 1/(1 + e^(-yt)) has poles at t = ±iπ."""
    reach = float(np.linalg.norm(frame.t_slope)) if response.name == "logistic" else 0.0
    return 0.4 if reach <= 2.5 or frame.rank == 2 else 1.0 / reach  # in the plane so fine a grid is out of reach


def _sampled(loss: Loss, response: Response, frame: Frame, rng: Rng, batches: int = 16) -> Expectation:
    """y only through its sampler: draw it at every node of a rule for z, in batches that give the standard error."""
    points, measure = np.zeros((4000, 0)), np.full(4000, 1.0 / 4000)
    if frame.rank:
        points, cell = grid(frame.rank, 0.02 if frame.rank == 1 else 0.25)
        measure = cell * gaussian(points)
    h, t = contours.affine(frame, points)
    share = measure[:, None, None] / batches * contours.second_moments(points)
    parts = []
    for batch in range(batches):
        y = np.asarray(response.draw(rng.child("response", batch).numpy(), t), dtype=np.float64)
        parts.append((np.asarray(loss.curvature(y, h), dtype=np.float64), share))
    means = [batches * float(m[:, 0, 0] @ g) for g, m in parts]
    error = float(np.std(means, ddof=1) / np.sqrt(batches))
    whole = _joined(parts, (0.0, 0.0))
    order = np.argsort(whole.nodes)
    nodes, moments = whole.nodes[order], whole.moments[order]
    # Neighbouring draws are merged: the sampling error is far larger than the width of a group.
    starts = np.arange(0, nodes.size, max(1, nodes.size // 4000))
    weights = np.add.reduceat(moments[:, 0, 0], starts)
    centres = np.add.reduceat(moments[:, 0, 0] * nodes, starts) / np.maximum(weights, 1e-300)
    grouped = replace(whole, nodes=centres, moments=np.add.reduceat(moments, starts, axis=0))
    return _checked(replace(grouped, range=(float(nodes[0]), float(nodes[-1])), error=error, kind="sampling"))
