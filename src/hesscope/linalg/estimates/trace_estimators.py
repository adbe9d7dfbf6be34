"""Trace estimators that grow: Hutchinson, Hutch++, XTrace, XNysTrace."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from ...errors import refuse
from ...measure import Array
from ...operators import Counted
from ...operators.columns import joined_columns
from ...rng import Rng
from ..krylov.orthogonal import orthonormalise
from ..resuming.checkpoint import Arrays
from ..validation import innermost, multiply
from .estimate import Indices, exchangeable_mean, mean_of_forms, with_rounding
from .sketch import Sketch, draw, left_out


class TraceEstimator(ABC):
    """`grow` spends `cost` products per probe and keeps `memory` vectors of each; `estimate` may be asked at any time."""

    cost = 1
    memory = 1
    least = 10

    def __init__(self, op: Counted, rng: Rng) -> None:
        self.op, self.rng, self.probes = op, rng, 0

    @abstractmethod
    def grow(self, count: int) -> None: ...

    @abstractmethod
    def estimate(self) -> tuple[float, float]: ...

    @abstractmethod
    def state(self) -> tuple[Arrays, dict[int, Tensor]]:
        """What a run that goes on needs: small arrays, and vectors by name."""

    @abstractmethod
    def restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        """Continue from `state`."""

    @property
    def finished(self) -> bool:
        """Whether the estimate is exact because the range of the operator is known."""
        return False


class Hutchinson(TraceEstimator):
    """Mean of ωᵀAω over random signs ω."""

    least = 20

    def __init__(self, op: Counted, rng: Rng) -> None:
        super().__init__(op, rng)
        self.samples: list[float] = []

    def grow(self, count: int) -> None:
        for index in range(self.probes, self.probes + count):
            omega = draw(self.op, "rademacher", self.rng, index)
            self.samples.append(float(self.op.layout.inner(omega, multiply(self.op, omega))))
        self.probes += count

    def estimate(self) -> tuple[float, float]:
        return mean_of_forms(np.array(self.samples))

    def state(self) -> tuple[Arrays, dict[int, Tensor]]:
        return {"samples": np.array(self.samples)}, {}

    def restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        self.samples = state["samples"].tolist()
        self.probes = len(self.samples)


class HutchPlusPlus(TraceEstimator):
    """tr(QᵀAQ) + mean of ω̃ᵀAω̃ with ω̃ = (I − QQᵀ)ω, where Q spans the images of other random vectors."""

    cost, memory = 3, 6

    def __init__(self, op: Counted, rng: Rng) -> None:
        super().__init__(op, rng)
        self.sketch = Sketch(op, "rademacher", rng.child("sketch"))
        self.omega = self.images = self.sketch.omega

    def grow(self, count: int) -> None:
        if not self.sketch.captured:
            self.sketch.grow(count)
        new = self._probes(self.probes, self.probes + count)
        self.omega = joined_columns([self.omega, new])
        self.images = joined_columns([self.images, multiply(self.op, new)])
        self.probes += count

    def _probes(self, start: int, stop: int) -> Tensor:
        rng = self.rng.child("probe")
        return joined_columns([draw(self.op, "rademacher", rng, index) for index in range(start, stop)])

    def estimate(self) -> tuple[float, float]:
        layout, q, h = self.op.layout, self.sketch.q, self.sketch.h
        if self.finished:
            return float(np.trace(h)), 0.0
        w, qy = layout.inner(q, self.omega).cpu().numpy(), layout.inner(q, self.images).cpu().numpy()
        whole = np.diag(layout.inner(self.omega, self.images).cpu().numpy())
        mean, stderr = mean_of_forms(whole - 2 * (w * qy).sum(0) + (w * (h @ w)).sum(0))
        return float(np.trace(h)) + mean, stderr

    def state(self) -> tuple[Arrays, dict[int, Tensor]]:
        small, vectors = self.sketch.state()
        # Names of the sketch are at least 0, so those of the images go down from -1.
        return small, vectors | {-1 - j: self.images[:, j] for j in range(self.probes)}

    def restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        self.sketch.restore(state, {name: row for name, row in vectors.items() if name >= 0})
        own = [vectors[name] for name in sorted(vectors, reverse=True) if name < 0]
        self.images, self.probes = torch.stack(own).T.to(self.op.device), len(own)
        self.omega = self._probes(0, self.probes)

    @property
    def finished(self) -> bool:
        return self.sketch.captured


class SketchedEstimator(TraceEstimator):
    """Probes that are the columns of a sketch, each tested against that of all the others."""

    cost, memory = 2, 4

    def __init__(self, op: Counted, rng: Rng) -> None:
        super().__init__(op, rng)
        self.sketch = Sketch(op, "normal", rng)

    def grow(self, count: int) -> None:
        self.sketch.grow(count)
        self.probes += count

    def state(self) -> tuple[Arrays, dict[int, Tensor]]:
        return self.sketch.state()

    def restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        self.sketch.restore(state, vectors)
        self.probes = self.sketch.columns

    @property
    def finished(self) -> bool:
        return self.sketch.captured


class XTrace(SketchedEstimator):
    """Hutch++ in which every probe is tested against the sketch of all the others."""

    def estimate(self) -> tuple[float, float]:
        sketch, n = self.sketch, self.op.shape[0]
        if self.finished:
            return float(np.trace(sketch.h)), 0.0
        w = sketch.overlaps()
        whole = np.diag(self.op.layout.inner(sketch.omega, sketch.y).cpu().numpy())

        def of(columns: Indices) -> Array:
            # Without some columns the images span less: rotate to an orthonormal basis of what is left.
            basis, r = np.linalg.qr(sketch.r[:, columns])
            return _leave_one_out(basis.T @ sketch.h @ basis, r, basis.T @ w[:, columns], whole[columns], n)

        mean, stderr = exchangeable_mean(of, self.probes)
        return mean, with_rounding(stderr, float(np.abs(whole).mean()) + abs(mean), self.op.dtype)


class XNysTrace(TraceEstimator):
    """Trace of the Nyström approximation Y(ΩᵀY)⁻¹Yᵀ, every probe tested against that of all the others."""

    memory = 6

    def __init__(self, op: Counted, rng: Rng) -> None:
        super().__init__(op, rng)
        self.omega = self.y = torch.zeros(op.layout.local_size, 0, dtype=op.dtype, device=op.device)

    def grow(self, count: int) -> None:
        new = self._draws(self.probes, self.probes + count)
        self.omega = joined_columns([self.omega, new])
        self.y = joined_columns([self.y, multiply(self.op, new)])
        self.probes += count

    def estimate(self) -> tuple[float, float]:
        layout, n, m = self.op.layout, self.op.shape[0], self.probes
        gram, core = (layout.inner(self.omega, a).cpu().numpy() for a in (self.omega, self.y))
        core = (core + core.T) / 2
        values = np.linalg.eigvalsh(core)
        self._require_positive(values)
        if values[-1] <= 0:
            return 0.0, 0.0
        # Of A + νI, of which νn is known: flat, it adds nothing to the spread, and where a spectrum decays faster than probes
        # grow in number, their core still has a root.
        shift = 100 * float(torch.finfo(self.op.dtype).eps) * float(values[-1]) / float(np.linalg.eigvalsh(gram)[0])
        core = core + shift * gram
        images = self.y.double() + shift * self.omega.double()
        # By a triangle rather than from inner products, whose rounding the inverse of the core would make large.
        _, triangle = orthonormalise(layout, images, 0.0)

        def of(columns: Indices) -> Array:
            grid = np.ix_(columns, columns)
            root = np.linalg.inv(np.linalg.cholesky(core[grid]))
            weights, tests = triangle[:, columns] @ root.T, np.diag(np.linalg.inv(gram[grid]))
            peak = (root * root).sum(0)
            lost = ((weights @ root) ** 2).sum(0) / peak
            return np.asarray((weights * weights).sum() - lost + (n - columns.size + 1) * tests / peak)

        mean, stderr = exchangeable_mean(of, m, skewed=True)
        return mean - n * shift, with_rounding(stderr, mean, self.op.dtype)

    def _draws(self, start: int, stop: int) -> Tensor:
        return joined_columns([draw(self.op, "normal", self.rng, index) for index in range(start, stop)])

    def state(self) -> tuple[Arrays, dict[int, Tensor]]:
        return {}, {j: self.y[:, j] for j in range(self.probes)}

    def restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        self.y, self.probes = torch.stack([vectors[j] for j in sorted(vectors)]).T.to(self.op.device), len(vectors)
        self.omega = self._draws(0, self.probes)

    def _require_positive(self, values: Array) -> None:
        if values[0] < -1e-3 * abs(values[-1]):
            refuse(
                "XNysTrace needs a positive semi-definite operator",
                f"{innermost(self.op)!r} with negative curvature",
                'Use method="xtrace".',
            )


def _leave_one_out(h: Array, r: Array, w: Array, whole: Array, n: int) -> Array:
    """For every i, tr(Q_iᵀAQ_i) + ω̃_iᵀAω̃_i, where Q_i spans the images of all probes but the i-th."""
    s = left_out(r)
    x = w - s * (s * w).sum(0)
    rest = whole - 2 * (x * r).sum(0) + (x * (h @ x)).sum(0)
    # ω̃ is a random direction of known length: rescaling it to its expected length removes that part of the noise.
    scale = (n - r.shape[1] + 1) / (n - (x * x).sum(0))
    return np.asarray(np.trace(h) - (s * (h @ s)).sum(0) + scale * rest)


METHODS: dict[str, type[TraceEstimator]] = {
    "hutchinson": Hutchinson,
    "hutch++": HutchPlusPlus,
    "xtrace": XTrace,
    "xnystrace": XNysTrace,
}
