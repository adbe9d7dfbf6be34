"""The Marchenko-Pastur law in closed form."""

from __future__ import annotations

from math import comb

import numpy as np

from ...arguments import as_float, is_count, shown
from ...errors import refuse
from ...measure import AtomicMeasure
from ..separable.law import GeneralisedMarchenkoPastur, check_ratio
from ..separable.population import Complex, Real


class MarchenkoPastur(GeneralisedMarchenkoPastur):
    """f(x) = √((b - x)(x - a))/(2π c s x), a, b = s(1 ∓ √c)²: the spectrum of (s/n) X Xᵀ, X standard normal, c = p/n.

    The separable law with g = s and C = I, without iteration: δ solves s z δ² + (z + (c - 1)s) δ + c = 0.

    >>> law = MarchenkoPastur(ratio=0.25, scale=2.0)
    >>> law.edges, law.moment(2), law.mass_at_zero
    ([0.5, 4.5], 5.0, 0.0)
    """

    scale: float

    def __init__(self, ratio: float, scale: float = 1.0) -> None:
        check_ratio(ratio)
        found = as_float(scale)
        if found is None or not np.isfinite(found) or found == 0:
            refuse("scale must be finite and not zero", shown(scale), "Pass the variance of the entries.")
        object.__setattr__(self, "scale", float(scale))
        super().__init__(AtomicMeasure.of([scale]), None, ratio)

    @property
    def support(self) -> list[tuple[float, float]]:
        ends = sorted(self.scale * (1.0 + sign * np.sqrt(self.ratio)) ** 2 for sign in (-1.0, 1.0))
        return [(float(ends[0]), float(ends[1]))]

    def moment(self, k: int) -> float:
        """s^k Σ_r binom(k, r) binom(k - 1, r) c^r/(r + 1), the Narayana polynomial."""
        if not is_count(k, 1):
            return super().moment(k)
        return float(self.scale**k * sum(comb(k, r) * comb(k - 1, r) * self.ratio**r / (r + 1) for r in range(int(k))))

    def _solve(self, z: Real | Complex) -> tuple[Complex, Complex]:
        point = np.asarray(z, np.complex128)
        half = 0.5 * (point + (self.ratio - 1.0) * self.scale)
        root = np.sqrt(half**2 - self.ratio * self.scale * point)
        # Vieta: take the root without cancellation, get the other from the product, keep the one above the axis.
        big = -half - np.where(np.real(np.conj(half) * root) >= 0, 1.0, -1.0) * root
        pair = np.stack([big / (self.scale * point), self.ratio / big])
        delta = np.where(pair[0].imag >= pair[1].imag, pair[0], pair[1])
        return delta, self.scale / (1.0 + self.scale * delta)
