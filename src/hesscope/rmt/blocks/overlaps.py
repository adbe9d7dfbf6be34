"""Averages over two independent rectified Gaussian vectors a = σ(z), b = σ(z') in R^m, tilted towards large a·b."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...measure import Array
from ...rng import Rng


def overlap_moments(r: float) -> tuple[float, float, float]:
    """J_k(r) = E[(a b)^k e^(r a b) 1{a, b > 0}] for k = 0, 1, 2 and one pair of rectified Gaussians, -1 < r < 1."""
    gap = 1.0 - r * r
    quadrant = 0.25 + np.arcsin(r) / (2 * np.pi)
    zeroth = quadrant / np.sqrt(gap)
    first = 1 / (2 * np.pi * gap) + r * quadrant / gap**1.5
    second = 3 * r / (2 * np.pi * gap**2) + (1 + 2 * r * r) * quadrant / gap**2.5
    return float(zeroth), float(first), float(second)


@dataclass(frozen=True, eq=False)
class RectifiedPairs:
    """Draws of (a, b) / sqrt(m) from the density ∝ e^(tilt a·b / m) times their own, and the weights that undo it.

    In the limit of many classes the integrands grow like e^(tilt a·b / m): drawn this way they vary like a polynomial,
    where plain draws would have infinite variance at small m.
    """

    a: Array  # (n, m)
    b: Array
    weights: Array  # (n,), mean 1 in expectation

    @staticmethod
    def draw(hidden: int, tilt: float, count: int, rng: Rng) -> RectifiedPairs:
        """`count` pairs; each coordinate is both on, one on, the other on, or both off."""
        generator = rng.numpy()
        r = tilt / hidden
        both = overlap_moments(r)[0]
        mass = 0.75 + both
        shape = (count, hidden)
        case = np.searchsorted(np.cumsum([both, 0.25, 0.25]) / mass, generator.random(shape), side="right")
        # On the quadrant, in polar coordinates: the angle has density ∝ 1/(1 - r sin 2θ), the radius is Rayleigh.
        uniform = generator.uniform(-np.arcsin(r), np.pi / 2, shape)
        angle = np.arctan(r + np.sqrt(1 - r * r) * np.tan(uniform))
        radius = np.sqrt(2 * generator.standard_exponential(shape) / (1 - r * np.sin(2 * angle)))
        alone = np.abs(generator.standard_normal(shape))
        a = np.select([case == 0, case == 1], [radius * np.cos(angle), alone], 0.0) / np.sqrt(hidden)
        b = np.select([case == 0, case == 2], [radius * np.sin(angle), alone], 0.0) / np.sqrt(hidden)
        return RectifiedPairs(a, b, mass**hidden * np.exp(-tilt * (a * b).sum(1)))

    @property
    def overlap(self) -> Array:
        """ρ = a·b / m, the covariance of the logits of one class on the two examples."""
        return np.asarray((self.a * self.b).sum(1))

    @property
    def coordinates(self) -> tuple[Array, Array, Array]:
        """(|a|, |b|) / sqrt(m), the logits' standard deviations, and their correlation."""
        first, second = np.linalg.norm(self.a, axis=1), np.linalg.norm(self.b, axis=1)
        return first, second, np.minimum(self.overlap / np.maximum(first * second, 1e-300), 1.0)


def controlled_mean(values: Array, controls: Array, means: Array) -> tuple[float, float]:
    """Mean of `values` (n,) and its standard error, by regression on `controls` (n, k) whose true means are known."""
    centred = controls - controls.mean(0)
    slope = np.linalg.lstsq(centred, values - values.mean(), rcond=None)[0]
    residual = values - (controls - means) @ slope
    freedom = values.size - 1 - controls.shape[1]
    spread = np.sqrt(((residual - residual.mean()) ** 2).sum() / freedom)
    return float(residual.mean()), float(spread / np.sqrt(values.size))
