"""The whole Hessian of a softmax classifier at initialisation: block-valued g, reduced to a scalar law by symmetry."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import ndtri, softmax

from ...arguments import as_float, is_count, shown
from ...errors import refuse
from ...measure import AtomicMeasure
from ...rng import Rng
from ..laws.with_zeros import LawWithZeros
from ..separable.gaussian_grid import gaussian, grid
from ..separable.law import GeneralisedMarchenkoPastur, check_ratio
from ..separable.population import Population, Real


@dataclass(frozen=True, eq=False)
class SoftmaxGLM:
    """H = (1/n) Σ_i A_i ⊗ x_i x_iᵀ, A = diag(p) - ppᵀ, p = softmax(W x): the K d x K d Hessian, W at random, d/n → ratio.

    With logits asymptotically independent N(0, logit_std²), E[A(1 + δA)⁻¹] is a multiple of I - 11ᵀ/K, so the spectrum
    is 1/K zeros (adding a constant to all logits changes nothing) and, for the rest, the separable law whose g is an
    eigenvalue of A drawn at random. K = 2 integrates by quadrature; K > 2 by scrambled Sobol points, with `accuracy`
    the standard error of E[g] over independent scramblings. logit_std² = tr(C)/d for W with variance 1/d entries.

    >>> law = SoftmaxGLM(classes=3, logit_std=0.0, ratio=0.25).law()
    >>> round(law.mass_at_zero, 12), [round(edge, 12) for edge in law.edges]
    (0.333333333333, [0.083333333333, 0.75])
    """

    classes: int
    logit_std: float
    ratio: float
    population_c: AtomicMeasure | None = None
    rng: Rng = field(default_factory=Rng)

    def __post_init__(self) -> None:
        spread = as_float(self.logit_std)
        if not is_count(self.classes, 2) or spread is None or not 0 <= spread < np.inf:
            refuse(
                "a softmax needs an integer classes >= 2 and a finite logit_std >= 0",
                f"classes={self.classes}, logit_std={self.logit_std}",
                "Pass the number of outputs and the standard deviation of one logit.",
            )
        check_ratio(self.ratio)
        object.__setattr__(self, "rng", Rng.of(self.rng))
        if not (self.population_c is None or isinstance(self.population_c, AtomicMeasure)):
            refuse(
                "population_c must be an atomic measure", shown(self.population_c), "Use hs.AtomicMeasure.of(values)."
            )

    @cached_property
    def _batches(self) -> list[tuple[Real, Real]]:
        """(eigenvalues of A off the constant vector, weights) from each independent rule."""
        k = self.classes
        if self.logit_std == 0:
            return [(np.array([1.0 / k]), np.ones(1))]
        if k == 2:
            step = 0.5 / (4.0 * max(1.0, np.sqrt(2.0) * self.logit_std))
            points, cell = grid(1, step)
            gap = np.sqrt(2.0) * self.logit_std * points[:, 0]
            return [(0.5 / np.cosh(0.5 * gap) ** 2, cell * np.real(gaussian(points)))]
        return [self._sobol(batch) for batch in range(8)]

    def _sobol(self, batch: int) -> tuple[Real, Real]:
        from scipy.stats import qmc  # takes longer to load than all else that is used here

        power = 9 if self.classes <= 32 else 7
        sampler = qmc.Sobol(self.classes, rng=self.rng.child("softmax", batch).numpy())
        logits = self.logit_std * ndtri(np.clip(sampler.random_base2(power), 1e-12, 1 - 1e-12))
        p = softmax(logits, axis=1)
        curvature = p[:, :, None] * (np.eye(self.classes) - p[:, None, :])
        # The smallest eigenvalue is the exact zero of the constant vector.
        values = np.maximum(np.linalg.eigvalsh(curvature)[:, 1:].ravel(), 0.0)
        return values, np.full(values.size, 1.0 / values.size)

    @property
    def accuracy(self) -> tuple[str, float]:
        """("quadrature", 0) or ("sampling", standard error of E[g])."""
        means = [float(values @ weights) for values, weights in self._batches]
        if len(means) == 1:
            return "quadrature", 0.0
        return "sampling", float(np.std(means, ddof=1) / np.sqrt(len(means)))

    @cached_property
    def curvature(self) -> AtomicMeasure:
        """The law of a random eigenvalue of A off the constant vector."""
        return AtomicMeasure.mixture([AtomicMeasure.of(values, weights) for values, weights in self._batches])

    def law(self) -> LawWithZeros:
        """The limiting spectrum of the whole Hessian."""
        nodes, weights = _grouped(self.curvature)
        if nodes.size == 1:
            g = Population.atoms(AtomicMeasure.of(nodes), "the law of g")
        else:
            g = Population(nodes, weights, ((float(nodes[0]), float(nodes[-1])),), 0.0, False)
        return LawWithZeros(1.0 / self.classes, GeneralisedMarchenkoPastur(g, self.population_c, self.ratio))

    def simulate(self, d: int, rng: Rng) -> AtomicMeasure:
        """The spectrum of one Hessian of size classes·d with n = d/ratio Gaussian samples."""
        if not is_count(d, 1):
            refuse("d must be an integer >= 1", shown(d), "Pass the dimension of the inputs.")
        rng = Rng.of(rng)
        k, n = self.classes, max(1, round(d / self.ratio))
        t = np.ones(d) if self.population_c is None else self.population_c.quantile((np.arange(d) + 0.5) / d)
        generator = rng.numpy()
        weights = generator.standard_normal((d, k)) * self.logit_std / np.sqrt(t.sum())
        x = generator.standard_normal((n, d)) * np.sqrt(t)
        p = softmax(x @ weights, axis=1)
        blocks = [[(x.T * (p[:, a] * ((a == b) - p[:, b]))) @ x / n for b in range(k)] for a in range(k)]
        values = np.linalg.eigvalsh(np.block(blocks))
        idle = k * d - min((k - 1) * d, (k - 1) * n)
        values[np.argsort(np.abs(values))[:idle]] = 0.0
        return AtomicMeasure.of(values)


def _grouped(measure: AtomicMeasure, most: int = 1500) -> tuple[Real, Real]:
    """Neighbouring atoms merged into at most about `most`, keeping mass and mean."""
    if measure.nodes.size <= most:
        return measure.nodes, measure.weights
    starts = np.arange(0, measure.nodes.size, -(-measure.nodes.size // most))
    weights = np.add.reduceat(measure.weights, starts)
    return np.add.reduceat(measure.weights * measure.nodes, starts) / weights, weights
