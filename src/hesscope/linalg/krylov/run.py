"""Which pending direction next, when to restart, when to stop: the run behind `eigenpairs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...errors import refuse
from ...measure import Array
from ...operators import Counted
from ...results.spectra import Bools
from ...rng import Rng
from ..resuming.checkpoint import Arrays
from ..resuming.resumable import Resumable
from .basis import KrylovBasis
from .multiplicity import contributes, nothing_missed

# Residuals of pairs that have fully converged come out at one to three units of rounding of ‖H‖.
ROUNDING = 4.0
START_IS_CLOSE = 3.0
# Vectors, beside three for each eigenpair, that have their place from the start: on a CPU, empty places take no memory.
EXPECTED_ON_CPU, EXPECTED = 128, 20
Which = Literal["largest", "smallest", "both", "magnitude"]
Indices = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True)
class Goal:
    """Which eigenpairs, and how well."""

    k: int
    which: Which
    tol: float

    def __post_init__(self) -> None:
        if self.which not in ("largest", "smallest", "both", "magnitude"):
            refuse(
                'which must be "largest", "smallest", "both" or "magnitude"',
                f"{self.which!r}",
                "Leave it at 'largest'.",
            )

    @property
    def count(self) -> int:
        return 2 * self.k if self.which == "both" else self.k

    def select(self, values: Array) -> Indices:
        """Indices of the wanted ones among ascending `values`, in the order they are reported."""
        up = np.arange(values.size)
        if self.which == "largest":
            return up[::-1][: self.k]
        if self.which == "smallest":
            return up[: self.k]
        if self.which == "magnitude":
            return np.argsort(-np.abs(values), kind="stable")[: self.k]
        if values.size >= 2 * self.k:
            return np.concatenate([up[::-1][: self.k], up[: self.k]])
        # Fewer values than asked for at both ends: each is reported once.
        high = (values.size + 1) // 2
        return np.concatenate([up[::-1][:high], up[: values.size - high]])

    def threshold(self, values: Array, norm: float, dtype: torch.dtype) -> Array:
        """tol · max(|λ|, ε^⅔ ‖H‖), but for values that are zero to rounding no less than rounding itself."""
        eps = float(torch.finfo(dtype).eps)
        bound = self.tol * np.maximum(np.abs(values), eps ** (2 / 3) * norm)
        zero = ROUNDING * eps * norm
        return np.asarray(np.where(np.abs(values) <= zero, np.maximum(bound, 2 * zero), bound))


class KrylovRun(Resumable):
    """Grow an `KrylovBasis` until the wanted Ritz pairs have converged and a random probe finds no missed copies."""

    def __init__(self, op: Counted, goal: Goal, block: int, limit: int, rng: Rng, room: Tensor | None = None) -> None:
        """`room`: places for `limit` vectors, where memory has none."""
        self.op, self.goal, self.block, self.limit, self.rng = op, goal, block, limit, rng
        places = (EXPECTED_ON_CPU if op.device.type == "cpu" else EXPECTED) + 3 * goal.count
        self.basis = KrylovBasis(op, min(limit, op.shape[0], places), room)
        self.injected = 0
        self.started_random, self.begun = True, False
        self.probe_from = -1
        self._earlier = -op.count

    @property
    def products(self) -> int:
        """Products spent, including those of a run that was killed."""
        return self._earlier + self.op.count

    def run(self, start: Tensor | None, budget: int) -> bool:
        """Spend at most `budget` products, from vectors of a nearby problem if there are any; whether that sufficed."""
        self._begin(None if start is None else start.to(dtype=self.op.dtype, device=self.op.device))
        while not self._finished():
            if self.products >= budget:
                return False
            if self._full:
                spare = self.limit - self.basis.pending - self.block
                self._restart(max(self.goal.count, (self.goal.count + spare) // 2))
            if self.basis.pending == 0 and self._inject(self.block) == 0:
                break
            self._advance(min(self._arrange(), budget - self.products))
        return True

    def _begin(self, start: Tensor | None) -> None:
        if self.begun:
            return
        if start is not None:
            if not self.basis.names:
                self.basis.append(start[:, :1])
                if self.basis.pending:
                    self._advance(1)
            rest = start[:, 1:]
            if self.basis.size and rest.shape[1]:
                value, _, residual = self.basis.ritz()
                # Vectors within the tolerance are worth a product each; rougher ones are worth more as one vector that
                # leans on all of them, because a single Krylov space is the cheapest way to refine.
                close = residual[0] <= START_IS_CLOSE * self.goal.tol * abs(value[0])
                self.basis.append(rest if close else rest.sum(1, keepdim=True))
                # The remainder of the first product waits until the start has been used up.
                if self.basis.pending > 1:
                    self.basis.lead(np.eye(self.basis.pending)[:, 1:])
        self.started_random = start is None
        self.begun = True
        self._inject(self.block - self.basis.pending)

    def _advance(self, width: int) -> None:
        self.basis.process(width)
        self._save()

    def wanted(self) -> tuple[Array, Array, Array, Bools]:
        """Values, coordinates, residuals and convergence of the wanted pairs."""
        values, y, recurrence = self.basis.ritz()
        chosen = self.goal.select(values)
        # The recurrence cannot know more than the products: rounding and their measured asymmetry are part of it.
        rounding = ROUNDING * float(torch.finfo(self.op.dtype).eps) * float(np.abs(values).max())
        residuals = np.sqrt(recurrence[chosen] ** 2 + self.basis.noise**2 + rounding**2)
        return values[chosen], y[:, chosen], residuals, residuals <= self._bound(values, chosen)

    def _bound(self, values: Array, chosen: Indices) -> Array:
        return self.goal.threshold(values[chosen], float(np.abs(values).max()), self.op.dtype)

    def _open(self) -> Array:
        """Residuals of the wanted pairs that have not converged, in P and in units of their bounds: `(pending, j)`."""
        values, y, recurrence = self.basis.ritz()
        chosen = self.goal.select(values)
        bound = self._bound(values, chosen)
        late = recurrence[chosen] > bound
        return np.asarray(self.basis.C @ y[:, chosen[late]] / np.maximum(bound[late], 1e-300))

    def _finished(self) -> bool:
        size, n = self.basis.size, self.op.shape[0]
        # Looking costs size³ operations: look after every product while that is nothing, then every two per cent.
        if size < min(self.goal.count, n) or (size // self.block) % max(1, size // 50 if size > 200 else 1):
            return False
        if self._open().shape[1]:
            self.probe_from = -1
            return False
        if size == n or self._block_saw_all():
            return True
        if self.probe_from >= 0 and self._probe_found_nothing():
            return True
        if self.probe_from < 0:
            self._start_probe()
        return self.basis.pending == 0

    def _block_saw_all(self) -> bool:
        """A random block of b columns sees b copies of every eigenvalue; fewer than b means that none is missing."""
        if self.block < 2 or not self.started_random:
            return False
        values = np.sort(self.wanted()[0])
        spread = self.goal.tol * max(abs(values[0]), abs(values[-1]))
        return values.size < self.block or bool(
            (values[self.block - 1 :] - values[: values.size - self.block + 1] > spread).all()
        )

    def _start_probe(self) -> None:
        """A random direction outside V becomes the first pending one; what it shares with P is not left out."""
        if self.limit - len(self.basis.names) < max(10, self.basis.size):
            self._restart(self.goal.count)
        self.probe_from = self.basis.size
        direction = self.basis.append(self._draw())
        if np.linalg.norm(direction) > 0:
            self.basis.lead(direction)

    def _probe_found_nothing(self) -> bool:
        first, size = self.probe_from, self.basis.size
        if size == first:
            return False
        values, probe = self.wanted()[0], self.basis.T[first:, first:]
        onward = float(np.linalg.norm(self.basis.C[:, -1]))
        ended = onward <= 1e-10 * self.basis.scale
        beta = np.append(np.abs(np.diag(probe, 1)), 0.0 if ended else onward)
        if nothing_missed(np.diag(probe), beta, values, self.goal.which, self.op.shape[0]):
            return True
        if not (ended or self._full or size - first >= max(10, first)):
            return False
        slack = float(self.goal.threshold(values, self.basis.scale, self.op.dtype).max())
        if not contributes(probe, values, self.goal.which, slack):
            return True
        # It found a copy, so there may be another one: ask again.
        self.probe_from = -1
        return False

    def _arrange(self) -> int:
        """Put the pending directions that matter most first; how many to take at once."""
        basis = self.basis
        if self.probe_from >= 0:
            if basis.size > self.probe_from:
                basis.lead(basis.C[:, -1:])
            return 1
        width = min(self.block, basis.pending)
        if basis.pending > width and basis.size >= self.goal.count:
            residuals = self._open()
            if residuals.shape[1]:
                basis.lead(np.linalg.svd(residuals)[0][:, :width])
        return width

    @property
    def _full(self) -> bool:
        return len(self.basis.names) + self.block > self.limit

    def _restart(self, keep: int) -> None:
        """Forget all but the `keep` best Ritz vectors; the relation of the expansion stays exact."""
        values, y, _ = self.basis.ritz()
        k = -(-keep // 2) if self.goal.which == "both" else keep
        self.basis.restart(y[:, Goal(k, self.goal.which, 1.0).select(values)])

    def _inject(self, count: int) -> int:
        """Add random pending directions, as many as there is space for."""
        before = self.basis.pending
        while self.basis.pending < before + count and len(self.basis.names) < self.op.shape[0]:
            self.basis.append(self._draw())
        return self.basis.pending - before

    def _draw(self) -> Tensor:
        self.injected += 1
        source = self.rng.child("start", self.injected - 1)
        return self.op.layout.draw(source, 1, "normal", self.op.dtype, self.op.device)

    def _restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        self.basis.restore(state, vectors)
        self.injected, self.probe_from = int(state["injected"]), int(state["probe_from"])
        self.started_random, self.begun = bool(state["started_random"]), bool(state["begun"])
        self.limit = int(state["limit"])
        self._earlier += int(state["products"])

    def _save(self) -> None:
        if self._store is None:
            return
        own = {
            "injected": self.injected,
            "probe_from": self.probe_from,
            "started_random": self.started_random,
            "begun": self.begun,
            "limit": self.limit,
            "products": self.products,
        }
        names = self.basis.names
        self._store.save({**self.basis.state(), **own}, names, self.basis.rows[: len(names)])
