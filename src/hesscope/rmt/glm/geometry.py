"""What the limit sees of (mean, w_star, w) and C: Gram matrices of the three vectors in each eigenspace of C."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ...arguments import real_array
from ...errors import refuse
from ...measure import AtomicMeasure
from ..separable.population import Real

MEAN, W_STAR, W = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Geometry:
    """Distinct eigenvalues t_j of C, their shares, and Γ_j = the 3 x 3 Gram matrix of (mean, w_star, w) in eigenspace j."""

    values: Real
    shares: Real
    grams: Real

    @staticmethod
    def of(mean: ArrayLike, w_star: ArrayLike, w: ArrayLike, covariance: ArrayLike | None) -> Geometry:
        named = {"mean": mean, "w_star": w_star, "w": w}
        vectors = [np.atleast_1d(real_array(name, v)) for name, v in named.items()]
        p = vectors[0].size
        broken = [name for name, v in zip(named, vectors, strict=True) if not np.all(np.isfinite(v))]
        if p == 0 or broken or any(v.shape != (p,) for v in vectors):
            shapes = f"shapes {', '.join(str(v.shape) for v in vectors)}"
            refuse(
                "mean, w_star and w must be finite vectors of one length",
                f"nan or infinity in {', '.join(broken)}" if broken else shapes,
                "Pad them with zeros to one length." if not broken else "Remove these entries.",
            )
        rows = np.stack(vectors)
        spectrum, coordinates = _diagonalise(covariance, rows, p)
        order = np.argsort(spectrum, kind="stable")
        spectrum, coordinates = spectrum[order], coordinates[:, order]
        start = np.flatnonzero(np.concatenate([[True], np.diff(spectrum) > 1e-12 * spectrum[-1]]))
        counts = np.diff(np.append(start, p))
        products = coordinates[:, None, :] * coordinates[None, :, :]
        grams = np.moveaxis(np.add.reduceat(products, start, axis=2), 2, 0)
        return Geometry(np.add.reduceat(spectrum, start) / counts, counts / p, grams)

    @property
    def population(self) -> AtomicMeasure:
        return AtomicMeasure.of(self.values, self.shares)

    def inner(self, first: int, second: int, power: int = 0) -> float:
        """aᵀ C^power b for two of the three vectors."""
        return float(self.values**power @ self.grams[:, first, second])

    def scaled(self, factors: tuple[float, float, float]) -> Geometry:
        """The geometry after (mean, w_star, w) are multiplied by these factors."""
        f = np.asarray(factors)
        return Geometry(self.values, self.shares, self.grams * np.multiply.outer(f, f))

    def coordinates(self, index: int) -> Real:
        """Coordinates (3, 3) of the three vectors in an orthonormal basis of their span within one eigenspace."""
        value, vectors = np.linalg.eigh(self.grams[index])
        return np.asarray(vectors * np.sqrt(np.maximum(value, 0.0)))


def _diagonalise(covariance: ArrayLike | None, rows: Real, p: int) -> tuple[Real, Real]:
    if covariance is None:
        return np.ones(p), rows
    matrix = real_array("covariance", covariance, f"Pass None, {p} diagonal entries or a {p} x {p} matrix.")
    if matrix.shape not in ((p,), (p, p)) or not np.all(np.isfinite(matrix)):
        refuse(
            f"covariance must be None, {p} finite diagonal entries or a {p} x {p} matrix",
            f"shape {matrix.shape}",
            "Match it to the length of w.",
        )
    if matrix.ndim == 1:
        spectrum, coordinates = matrix, rows
    else:
        if not np.allclose(matrix, matrix.T, rtol=1e-10, atol=1e-12 * np.abs(matrix).max()):
            refuse("a covariance matrix must be symmetric", "one that is not", "Average it with its transpose.")
        spectrum, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
        coordinates = rows @ vectors
    if not spectrum.min() > 0:
        refuse(
            "the covariance must be positive definite",
            f"smallest eigenvalue {spectrum.min():g}",
            "Drop the directions without variance, or add a ridge.",
        )
    return spectrum, coordinates
