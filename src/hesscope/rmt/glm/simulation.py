"""A finite Hessian from the same model: what the limit is checked against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arguments import is_count, shown
from ...errors import refuse
from ...measure import AtomicMeasure
from ...rng import Rng
from ..separable.population import Real
from .geometry import Geometry
from .losses import Loss, Response
from .spikes import Alignment

FEATURES = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "rademacher": lambda rng, shape: rng.integers(0, 2, shape) * 2.0 - 1.0,
    "uniform": lambda rng, shape: np.sqrt(12.0) * (rng.random(shape) - 0.5),
    # Six degrees of freedom: heavy tails that still have the four moments universality needs.
    "student": lambda rng, shape: rng.standard_t(6, shape) / np.sqrt(1.5),
}


@dataclass(frozen=True, eq=False)
class Simulation:
    """H = X diag(g) Xᵀ/n and the rows `vectors` = (mean, w_star, w) in its coordinates."""

    hessian: Real
    curvatures: Real
    vectors: Real

    @cached_property
    def _eigen(self) -> tuple[Real, Real]:
        values, vectors = np.linalg.eigh(self.hessian)
        return np.asarray(values), np.asarray(vectors)

    @property
    def eigenvalues(self) -> Real:
        return self._eigen[0]

    @property
    def measure(self) -> AtomicMeasure:
        """The spectrum; eigenvalues that are zero by rank are set to zero exactly."""
        values = self._eigen[0].copy()
        idle = self.hessian.shape[0] - self.curvatures.size
        if idle > 0:
            values[np.argsort(np.abs(values))[:idle]] = 0.0
        return AtomicMeasure.of(values)

    def alignment(self, index: int) -> Alignment:
        """Squared cosines of eigenvector `index` (ascending order, negative from the top) with (mean, w_star, w)."""
        products = (self.vectors @ self._eigen[1][:, index]) ** 2
        norms = (self.vectors**2).sum(axis=1)
        return Alignment(*(float(a / b) if b > 0 else float("nan") for a, b in zip(products, norms, strict=True)))


def simulate(
    geometry: Geometry,
    loss: Loss,
    response: Response,
    ratio: float,
    p: int,
    rng: Rng,
    features: str,
    vectors: Real | None = None,
) -> Simulation:
    """Draw n = p/ratio samples with the model's geometry placed in R^p, each direction spread over all coordinates.

    `vectors`, rows (mean, w_star, w) of length p, are taken as they are; the covariance must then be the identity.
    """
    if features not in FEATURES:
        refuse("features must name a distribution", f"{features!r}", f"There are: {', '.join(FEATURES)}.")
    if not is_count(p, 1):
        refuse("p must be an integer >= 1", shown(p), "Pass the dimension of the Hessian.")
    rng = Rng.of(rng)
    if vectors is None:
        spectrum, vectors = _place(geometry, p, rng.child("place").numpy())
    else:
        spectrum = np.ones(p)
    n = max(1, round(p / ratio))
    mean, w_star, w = vectors
    x = FEATURES[features](rng.child("features").numpy(), (n, p))
    x *= np.sqrt(spectrum)
    x += mean
    y = response.draw(rng.child("response").numpy(), x @ w_star)
    g = np.asarray(loss.curvature(y, x @ w), dtype=np.float64)
    return Simulation((x.T * g) @ x / n, g, vectors)


def _place(geometry: Geometry, p: int, rng: np.random.Generator) -> tuple[Real, Real]:
    """Eigenvalues and the three vectors in R^p with the model's Gram matrices in every eigenspace."""
    wanted = geometry.shares * p
    counts = np.floor(wanted + 1e-9).astype(int)
    for index in np.argsort(-(wanted - counts))[: p - counts.sum()]:
        counts[index] += 1
    spectrum, pieces = [], []
    for index, count in enumerate(counts):
        coordinates = geometry.coordinates(index)
        size = (coordinates**2).sum(axis=0)
        coordinates = coordinates[:, size > 1e-24 * max(1.0, float(size.max()))]
        if coordinates.shape[1] > count:
            refuse(
                "p must leave room for the model's vectors in every eigenspace of the covariance",
                f"p = {p}, of which {count} for the eigenvalue {geometry.values[index]:g}",
                "Simulate at a multiple of the length of w.",
            )
        directions, _ = np.linalg.qr(rng.standard_normal((max(count, 1), coordinates.shape[1])))
        pieces.append(coordinates @ directions[:count].T)
        spectrum.append(np.full(count, geometry.values[index]))
    return np.concatenate(spectrum), np.concatenate(pieces, axis=1)
