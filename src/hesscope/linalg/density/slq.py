"""Stochastic Lanczos quadrature that stops by its error: outliers once, then as few probes and steps as will do."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ...measure import Array, AtomicMeasure
from ...operators import Counted
from ...rng import Rng
from ..krylov.lanczos import Lanczos
from ..krylov.room import mix_rows
from ..resuming.checkpoint import Arrays
from ..resuming.resumable import Resumable
from .quadrature import averaged_rules, gauss, levy, sampling_error, spread

MOST_OUTLIERS = 64
LOOK_EVERY = 4
# The target is itself an estimate; asking for a little less than plain quadrature leaves makes reaching it likely.
CAUTION = 0.8


@dataclass(frozen=True)
class QuadratureLimits:
    """How far to go: at most `probes` × `steps`; `tol` is relative to E|λ − median|, None means "as good as all of them"."""

    probes: int
    steps: int
    tol: float | None
    full: bool


def vectors_of(plan: QuadratureLimits) -> int:
    """How many are there at once: a chain, and the outliers that an earlier one has found."""
    return plan.steps + 1 + min(MOST_OUTLIERS, plan.steps)


class Chain:
    """The tridiagonal matrix of one probe."""

    def __init__(self, alpha: ArrayLike, beta: ArrayLike) -> None:
        self.alpha, self.beta = np.array(alpha, dtype=np.float64), np.array(beta, dtype=np.float64)

    @cached_property
    def measure(self) -> AtomicMeasure:
        return averaged_rules(self.alpha, self.beta)

    @cached_property
    def earlier(self) -> AtomicMeasure:
        """The measure a quarter of the steps ago, which tells how much they still change."""
        m = self.alpha.size
        if m == 1:
            return AtomicMeasure.of(self.alpha)
        back = 0 if self.beta[-1] == 0.0 else max(1, m // 4)
        return averaged_rules(self.alpha[: m - back], self.beta[: m - back])


class SlqRun(Resumable):
    """Probe after probe, until the sampling and the quadrature error together meet the plan."""

    def __init__(self, op: Counted, plan: QuadratureLimits, rng: Rng, room: Tensor | None = None) -> None:
        """`room`: where vectors go that memory does not hold, `vectors_of(plan)` rows."""
        self.op, self.plan, self.rng, self.room = op, plan, rng, room
        self.chains: list[Chain] = []
        self.outliers: Array = np.zeros(0)
        self.radii: Array = np.zeros(0)
        self.outside = torch.zeros(op.layout.local_size, 0, dtype=op.dtype, device=op.device)
        self._judged: Chain | None = None
        self._last_target = (0.0, 0.0)
        self._earlier = -op.count
        self._loaded: tuple[dict[str, Any], dict[int, Tensor]] | None = None

    @property
    def products(self) -> int:
        """Products spent, including those of a run that was killed."""
        return self._earlier + self.op.count

    @property
    def bulk(self) -> int:
        """The dimension of the space that the probes sample."""
        return self.op.shape[0] - self.outliers.size

    def run(self) -> None:
        # More than n products would be more than the exact spectrum costs (but for a fixed number that was asked for).
        most = max(self.op.shape[0], 2 * self.plan.steps) if self.plan.tol != 0 else math.inf
        while len(self.chains) < self.plan.probes and not self._enough():
            if self.chains and self.products + self.plan.steps > most:
                break
            chain = self._probe(len(self.chains))
            self.chains.append(Chain(chain.alpha, chain.beta))
            if len(self.chains) == 1 and self.plan.full and self.plan.probes > 1:
                self._take_outliers(chain)

    def measures(self) -> list[AtomicMeasure]:
        """The spectrum without the outliers, as every probe sees it."""
        parts = [chain.measure for chain in self.chains]
        if self.outliers.size and parts:
            parts[0] = _without(parts[0], self.outliers, self.radii)
        return parts

    def errors(self) -> tuple[float, float]:
        """Estimated (W₁, Lévy) distance of the average from the spectrum."""
        parts = self.measures()
        share = self.bulk / self.op.shape[0]
        sampling = np.array(sampling_error(AtomicMeasure.mixture(parts), self.bulk)) / math.sqrt(len(parts))
        w1, sup = share * np.hypot(sampling, _quadrature_error(self.chains))
        return float(w1), float(sup)

    def _target(self, chain: Chain) -> tuple[float, float]:
        """What may remain: `tol`, or a little less than plain quadrature with all probes and steps would leave.

        Always judged by the first chain, because the others no longer see the outliers.
        """
        if chain is not self._judged:
            self._judged, self._last_target = chain, self._judge(chain)
        return self._last_target

    def _judge(self, chain: Chain) -> tuple[float, float]:
        measure = chain.measure
        size = spread(measure)
        if self.plan.tol is not None:
            return self.plan.tol * size, self.plan.tol
        sampling = np.array(sampling_error(measure, self.op.shape[0])) / math.sqrt(self.plan.probes)
        plain = gauss(chain.alpha, chain.beta[:-1])
        # The error of plain Gauss quadrature falls like 1/m in the bulk of a spectrum.
        rule = np.array([plain.wasserstein(measure), levy(plain, measure, 0.01 * size)])
        w1, sup = CAUTION * np.hypot(sampling, rule * chain.alpha.size / self.plan.steps)
        return float(w1), float(sup)

    def _enough(self) -> bool:
        if self.plan.tol == 0 or len(self.chains) < min(2, self.plan.probes):
            return False
        return all(error <= target for error, target in zip(self.errors(), self._target(self.chains[0]), strict=True))

    def _probe(self, index: int) -> Lanczos:
        start = self.op.layout.draw(self.rng.child("probe", index), 1, "normal", self.op.dtype, self.op.device)
        lanczos = Lanczos(self.op, start, self.outside, self.plan.full, self.room)
        # Beside large eigenvalues outside of the chain, what is left of a rank is rounding: it ends the chain.
        lanczos.scale = float(np.abs(self.outliers).max(initial=0.0))
        if self._loaded is not None:
            lanczos.restore(*self._loaded)
            self._loaded = None
        limit = min(self.plan.steps, self.bulk)
        while lanczos.steps < limit and not lanczos.ended and not self._probe_is_enough(lanczos):
            lanczos.step()
            self._save(lanczos)
        return lanczos

    def _restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        lengths = np.cumsum(state["lengths"])[:-1].astype(int)
        pairs = zip(np.split(state["alphas"], lengths), np.split(state["betas"], lengths), strict=True)
        self.chains = [Chain(alpha, beta) for alpha, beta in pairs if alpha.size]
        self.outliers, self.radii = state["outliers"], state["radii"]
        self.plan = replace(self.plan, full=bool(state["full"]))
        first, offset = self._first_outside_name(), self._first_name(len(self.chains))
        names = range(first, first + self.outliers.size)
        if self.outliers.size and self.room is not None:
            for row, name in zip(self.room, names, strict=False):
                row.copy_(vectors.pop(name))
            self.outside = self.room[: self.outliers.size].T
        elif self.outliers.size:
            self.outside = torch.stack([vectors.pop(name) for name in names]).T.to(self.op.device)
        self._loaded = state, {name - offset: row for name, row in vectors.items()}
        self._earlier += int(state["products"])

    def _save(self, lanczos: Lanczos) -> None:
        if self._store is None:
            return
        first, offset = self._first_outside_name(), self._first_name(len(self.chains))
        own = {
            "lengths": np.array([chain.alpha.size for chain in self.chains]),
            "alphas": np.concatenate([np.zeros(0), *(chain.alpha for chain in self.chains)]),
            "betas": np.concatenate([np.zeros(0), *(chain.beta for chain in self.chains)]),
            "outliers": self.outliers,
            "radii": self.radii,
            "full": self.plan.full,
            "products": self.products,
        }
        names = [*range(first, first + self.outliers.size), *(offset + name for name in lanczos.names)]
        self._store.save({**own, **lanczos.state()}, names, [*self.outside.T, *lanczos.rows])

    def _first_name(self, probe: int) -> int:
        return probe * (self.plan.steps + 2)

    def _first_outside_name(self) -> int:
        return self._first_name(self.plan.probes)

    def _probe_is_enough(self, lanczos: Lanczos) -> bool:
        if self.plan.tol == 0 or lanczos.steps < 12 or lanczos.steps % LOOK_EVERY:
            return False
        chains = [*self.chains, Chain(lanczos.alpha, lanczos.beta)]
        pairs = zip(_quadrature_error(chains), self._target(chains[0]), strict=True)
        # Half of the squared error is left to sampling.
        return all(error <= 0.7 * target for error, target in pairs)

    def _take_outliers(self, lanczos: Lanczos) -> None:
        """Converged, isolated Ritz pairs of the first probe: exact atoms of weight 1/n, removed from the other probes."""
        chain = self.chains[0]
        nodes, y = np.linalg.eigh(np.diag(chain.alpha) + np.diag(chain.beta[:-1], 1) + np.diag(chain.beta[:-1], -1))
        residual = chain.beta[-1] * np.abs(y[-1])
        gap = np.min(np.abs(np.subtract.outer(nodes, nodes)) + np.diag(np.full(nodes.size, np.inf)), axis=1)
        # A node much heavier than 1/n stands for many eigenvalues, not for one.
        single = y[0] ** 2 * self.op.shape[0] < 10
        good = np.flatnonzero((residual <= 1e-2 * gap) & (residual <= 1e-3 * np.abs(nodes)) & single)
        good = good[np.argsort(-np.abs(nodes[good]))][: min(MOST_OUTLIERS, self.op.shape[0] // 4)]
        self.outliers = nodes[good]
        self.radii = residual[good] + 1e-6 * gap[good]
        if self.room is None:
            self.outside = lanczos.vectors(y[:, good])
        else:
            mix_rows(self.room[: lanczos.steps], y[:, good].T)
            self.outside = self.room[: good.size].T


def _quadrature_error(chains: list[Chain]) -> tuple[float, float]:
    """How much the last quarter of the steps changed the average; averaging keeps what is not sampling noise."""
    now = AtomicMeasure.mixture([chain.measure for chain in chains])
    before = AtomicMeasure.mixture([chain.earlier for chain in chains])
    # An error that falls like m^-p is 3, 1.3 or 0.7 times what a quarter of the steps changes, for p = 1, 2, 3.
    return 1.5 * now.wasserstein(before), 1.5 * levy(now, before, 0.01 * spread(now))


def _without(measure: AtomicMeasure, atoms: Array, radii: Array) -> AtomicMeasure:
    keep = (np.abs(np.subtract.outer(measure.nodes, atoms)) > radii).all(axis=1)
    return AtomicMeasure.of(measure.nodes[keep], measure.weights[keep])
