"""The kernel polynomial method: Chebyshev moments with Jackson damping."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from ...measure import Array, AtomicMeasure
from ...operators import Counted
from ...rng import Rng
from ..krylov.lanczos import Lanczos
from ..resuming.checkpoint import Arrays
from ..resuming.resumable import Resumable
from ..validation import multiply
from .quadrature import levy, sampling_error, spread

BOUND_STEPS = 12


class ChebyshevRun(Resumable):
    """One measure per probe, from 2 · steps moments each, until the estimated errors meet `tol`."""

    def __init__(self, op: Counted, probes: int, steps: int, tol: float | None, rng: Rng) -> None:
        self.op, self.probes, self.steps, self.tol, self.rng = op, probes, steps, tol, rng
        self.bounds: tuple[float, float] | None = None
        self.finished: list[Array] = []  # moments of whole probes
        self.parts: list[AtomicMeasure] = []
        self.errors = (math.inf, math.inf)
        self._under_way: tuple[int, Array, Tensor, Tensor] | None = None
        self._earlier = -op.count

    @property
    def products(self) -> int:
        """Products spent, including those of a run that was killed."""
        return self._earlier + self.op.count

    def run(self) -> None:
        if self.bounds is None:
            self.bounds = _bounds(self.op, self.rng.child("bounds"))
            self._save()
        while len(self.parts) < self.probes and not self._enough():
            self._judge(self._moments(len(self.finished)))

    def _enough(self) -> bool:
        if self.tol is None or not self.parts:
            return False
        return self.errors[0] <= self.tol * spread(AtomicMeasure.mixture(self.parts)) and self.errors[1] <= self.tol

    def _judge(self, moments: Array) -> None:
        """Add a probe's measure, and estimate what is left of the error."""
        centre, half = self._interval
        self.finished.append(moments)
        self.parts.append(_damped(moments, centre, half))
        average = AtomicMeasure.mixture(self.parts)
        coarse = _damped(moments[: self.steps + 1], centre, half)
        sampling = np.array(sampling_error(average, self.op.shape[0])) / math.sqrt(len(self.parts))
        kernel = np.array([coarse.wasserstein(self.parts[-1]), levy(coarse, self.parts[-1], 0.01 * spread(average))])
        w1, sup = np.hypot(sampling, kernel)
        self.errors = float(w1), float(sup)

    @property
    def _interval(self) -> tuple[float, float]:
        assert self.bounds is not None
        low, high = self.bounds
        return (low + high) / 2, max((high - low) / 2, 1e-300)

    def _moments(self, index: int) -> Array:
        """μ_j = vᵀT_j(H̃)v for j ≤ 2 · steps: each product gives two, by 2 T_i T_j = T_{i+j} + T_{i−j}."""
        layout, op = self.op.layout, self.op
        centre, half = self._interval
        if self._under_way is None:
            v = layout.draw(self.rng.child("probe", index), 1, "normal", op.dtype, op.device)
            v = v / float(layout.norms(v))
            previous, current = v, (multiply(op, v) - centre * v) / half
            mu = np.zeros(2 * self.steps + 1)
            mu[0], mu[1] = 1.0, float(layout.inner(v, current))
            mu[2] = 2 * float(layout.inner(current, current)) - 1.0
            self._keep(1, mu, previous, current)
            j = 1
        else:
            j, mu, previous, current = self._under_way
        while j < self.steps:
            j += 1
            following = 2 * (multiply(op, current) - centre * current) / half - previous
            previous, current = current, following
            mu[2 * j - 1] = 2 * float(layout.inner(previous, current)) - mu[1]
            mu[2 * j] = 2 * float(layout.inner(current, current)) - 1.0
            self._keep(j, mu, previous, current)
        self._under_way = None
        return mu

    def _restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        self.bounds = (float(state["low"]), float(state["high"]))
        self._earlier += int(state["products"])
        for moments in state["finished"]:
            self._judge(moments)
        if vectors:
            j, names = int(state["step"]), sorted(vectors)
            columns = [vectors[name][:, None].to(self.op.device) for name in names]
            self._under_way = (j, state["moments"], columns[0], columns[1])

    def _keep(self, j: int, mu: Array, previous: Tensor, current: Tensor) -> None:
        self._under_way = (j, mu, previous, current)
        self._save()

    def _save(self) -> None:
        if self._store is None or self.bounds is None:
            return
        width = 2 * self.steps + 1
        state: dict[str, Any] = {
            "low": self.bounds[0],
            "high": self.bounds[1],
            "finished": np.array(self.finished).reshape(-1, width),
            "products": self.products,
        }
        names, rows = [], []
        if self._under_way is not None:
            j, mu, previous, current = self._under_way
            state |= {"step": j, "moments": mu}
            first = len(self.finished) * (self.steps + 1)
            names, rows = [first + j - 1, first + j], [previous[:, 0], current[:, 0]]
        self._store.save(state, names, rows)


def _bounds(op: Counted, rng: Rng) -> tuple[float, float]:
    """An interval that holds the spectrum: Ritz values widened by the residual of the outermost ones."""
    start = op.layout.draw(rng, 1, "normal", op.dtype, op.device)
    lanczos = Lanczos(op, start, start[:, :0], full=False)  # the ends are the same, whatever repeats in between
    while lanczos.steps < BOUND_STEPS and not lanczos.ended:
        lanczos.step()
    alpha, beta = np.array(lanczos.alpha), np.array(lanczos.beta)
    nodes = np.linalg.eigvalsh(np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1))
    # ‖H‖ ≤ max θ + β is Paige's bound for the whole chain; 1 % more for what a single start may not have seen.
    margin = beta[-1] + 0.01 * (nodes[-1] - nodes[0]) + 1e-12 * np.abs(nodes).max()
    return float(nodes[0] - margin), float(nodes[-1] + margin)


def _damped(moments: Array, centre: float, half: float) -> AtomicMeasure:
    """Jackson's kernel makes the truncated series positive; its mass sits on 4 Chebyshev points per moment."""
    order = moments.size
    j = np.arange(order)
    q = math.pi / (order + 1)
    jackson = ((order - j + 1) * np.cos(q * j) + np.sin(q * j) / math.tan(q)) / (order + 1)
    angles = math.pi * (np.arange(4 * order) + 0.5) / (4 * order)
    series = 2 * jackson * moments
    series[0] /= 2
    weights = np.maximum(np.cos(np.outer(angles, j)) @ series, 0.0)
    return AtomicMeasure.of(centre + half * np.cos(angles), weights)
