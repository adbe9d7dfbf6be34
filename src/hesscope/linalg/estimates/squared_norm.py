"""‖A‖_F² of a symmetric matrix from a sketch: what its basis sees, on both sides, is known; random probes test the rest."""

from __future__ import annotations

import numpy as np

from ...measure import Array
from .estimate import Indices, exchangeable_mean, with_rounding
from .sketch import left_out
from .trace_estimators import SketchedEstimator

_FEW = 20  # squares of what one probe finds are skewed, and a run that stops by its error stops at a flattering draw


class SquaredNorm(SketchedEstimator):
    """‖A‖² = 2‖AP‖² − ‖PAP‖² + ‖(I−P)A(I−P)‖², every probe tested against the sketch P of all the others.

    A large eigenvalue λ, of which the sketch misses an angle of 1/λ, is left with (1/λ)² of it rather than with 1: were it
    left on one side alone, probes that happen to be alike along it would find no spread and a wrong norm.
    """

    def estimate(self) -> tuple[float, float]:
        sketch, n = self.sketch, self.op.shape[0]
        squares = np.asarray(self.op.layout.inner(sketch.z, sketch.z).cpu().numpy())
        if self.finished:
            return float(np.trace(squares)), 0.0
        w = sketch.overlaps()

        def of(columns: Indices) -> Array:
            # Without some columns the images span less: rotate to an orthonormal basis of what is left.
            basis, r = np.linalg.qr(sketch.r[:, columns])
            h, k = (basis.T @ a @ basis for a in (sketch.h, squares))
            return _leave_one_out(h, k, r, basis.T @ w[:, columns], n)

        mean, stderr = exchangeable_mean(of, self.probes, skewed=self.probes < _FEW)
        return mean, with_rounding(stderr, mean, self.op.dtype)


def _leave_one_out(h: Array, k: Array, r: Array, w: Array, n: int) -> Array:
    """For every probe, with P = Q(I − ssᵀ)Qᵀ, h = QᵀAQ, k = QᵀA²Q, AΩ = QR, w = QᵀΩ and x = (I − ssᵀ)w."""
    s = left_out(r)
    x = w - s * (s * w).sum(0)
    hs, hx = h @ s, h @ x
    known = 2 * (np.trace(k) - (s * (k @ s)).sum(0))
    known -= (h * h).sum() - 2 * (hs * hs).sum(0) + (s * hs).sum(0) ** 2
    # (I − P)A(I − P)ω: along Qs, and what A makes of x outside of Q.
    rest = ((s * (r - hx)).sum(0)) ** 2 + (x * (k @ x)).sum(0) - (hx * hx).sum(0)
    # Of a random direction of known length, as in XTrace.
    return np.asarray(known + rest * (n - r.shape[1] + 1) / (n - (x * x).sum(0)))
