"""A law with extra zeros: share δ_0 + (1 - share) law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ...errors import refuse
from ...measure import AtomicMeasure, Measure
from ..separable.law import GeneralisedMarchenkoPastur
from ..separable.population import Complex, Real


@dataclass(frozen=True, eq=False)
class LawWithZeros(Measure):
    """F(x) = share 1[x >= 0] + (1 - share) F_law(x): for Hessians with directions the loss does not see at all."""

    share: float
    rest: GeneralisedMarchenkoPastur

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            refuse("the share of zeros must lie in [0, 1)", f"{self.share}", "Pass the fraction of zero eigenvalues.")

    @property
    def mass_at_zero(self) -> float:
        return self.share + (1.0 - self.share) * self.rest.mass_at_zero

    @property
    def support(self) -> list[tuple[float, float]]:
        return self.rest.support

    @property
    def edges(self) -> list[float]:
        return self.rest.edges

    def density(self, x: ArrayLike, width: float = 0.0) -> Real:
        rest = (1.0 - self.share) * self.rest.density(x, width)
        return rest + self.share * AtomicMeasure.of([0.0]).density(x, width) if width > 0 else rest

    def cdf(self, x: ArrayLike) -> Real:
        return np.asarray(self.share * (np.asarray(x) >= 0) + (1.0 - self.share) * self.rest.cdf(x))

    def moment(self, k: int) -> float:
        return (self.share if k == 0 else 0.0) + (1.0 - self.share) * self.rest.moment(k)

    def quantile(self, q: ArrayLike) -> Real:
        levels = np.asarray(q, dtype=np.float64)
        below = (1.0 - self.share) * float(self.rest.cdf(np.nextafter(0.0, -1.0)))
        after = np.where(levels > below + self.share, levels - self.share, levels) / (1.0 - self.share)
        at_zero = (levels > below) & (levels <= below + self.share)
        return np.where(at_zero, 0.0, self.rest.quantile(np.minimum(after, 1.0)))

    def stieltjes(self, z: ArrayLike) -> Complex:
        return np.asarray((1.0 - self.share) * self.rest.stieltjes(z) - self.share / np.asarray(z, np.complex128))

    def _test_points(self) -> Real:
        return np.append(self.rest._test_points(), 0.0)
