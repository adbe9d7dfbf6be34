"""What is found of Kronecker structure: layers beside their factors, overlaps, predictions. No torch is imported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import HesscopeError, refuse
from ..measure import Array, AtomicMeasure
from ..result import Result
from ..rng import Rng

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class KroneckerComparison(Result):
    """The exact layer Hessian H beside E[M] ⊗ E[x xᵀ].

    `overlap[j-1]` is that of the top-j eigenspaces. `spectral_error` is ‖H - K‖/‖H‖, `frobenius_error` the same in
    Frobenius norm (exact where `frobenius_stderr` is 0). `curvature` says how M was computed, and whether exactly.
    """

    _pictured = True

    layer: str
    size: int
    curvature: str
    reduction: str
    eigenvalues: Array
    approximate_eigenvalues: Array
    residuals: Array
    overlap: Array
    spectral_error: float
    frobenius_error: float
    frobenius_stderr: float
    vectors: Tensor
    approximate_vectors: Tensor
    check: str = "unchecked"

    def table(self) -> dict[str, Any]:
        count = self.eigenvalues.size
        return {
            "rank": list(range(1, count + 1)),
            "exact": self.eigenvalues,
            "residual": self.residuals,
            "Kronecker": self.approximate_eigenvalues[:count],
            "overlap": self.overlap[:count],
        }

    def overlap_at(self, j: int) -> float:
        """The overlap of the top-j spaces (of as many as there are)."""
        return float(self.overlap[min(j, self.overlap.size) - 1])

    def without_vectors(self) -> KroneckerComparison:
        """The same with empty `(n, 0)` blocks, where the vectors would be too much to keep."""
        return replace(self, vectors=self.vectors[:, :0], approximate_vectors=self.approximate_vectors[:, :0])


@dataclass(frozen=True, eq=False)
class KroneckerErrors(Result):
    """Relative errors of several Kronecker forms of one layer's Hessian; "nearest" is best in Frobenius norm."""

    layer: str
    names: tuple[str, ...]
    spectral: Array
    frobenius: Array
    frobenius_stderr: Array
    nearest_residual: float
    check: str = "unchecked"

    def table(self) -> dict[str, Any]:
        return {
            "form": self.names,
            "spectral error": self.spectral,
            "Frobenius error": self.frobenius,
            "Frobenius error ±": self.frobenius_stderr,
        }


@dataclass(frozen=True, eq=False)
class KroneckerPrediction(Result):
    """What decoupling predicts without a single Hessian product: E[M] ⊗ E[xxᵀ] of every layer, and the outliers.

    `nodes`, `weights`: the spectrum of the block-diagonal Kronecker approximation over all covered layers. `largest`:
    the top eigenvalues of the whole Hessian with every layer's inputs replaced by their mean (empty where that does
    not apply).
    """

    nodes: Array
    weights: Array
    largest: Array
    check: str = "unchecked"
    method: str = ""

    def measure(self) -> AtomicMeasure:
        return AtomicMeasure(self.nodes, self.weights)


@dataclass(frozen=True, eq=False)
class FullApproximation(Result):
    """Approximate top eigenvalues and orthonormal eigenvectors `(n, k)` of the full Hessian, in the problem's order.

    `output_hessian` is E[M] over the concatenated outputs of `layers` (Gauss-Newton), `input_norms` holds |E x̃|.
    """

    values: Array
    vectors: Tensor
    layers: tuple[str, ...]
    output_hessian: Tensor
    input_norms: Array
    form: str
    check: str = "unchecked"


@dataclass(frozen=True, eq=False)
class PredictedEigenspace(Result):
    """Orthonormal bases `(m, c - 1)` of the predicted top eigenspace of E[M].

    `corrected`: rows of (I - 11ᵀ/c) S_π with S_π = W^L Π^(L-1) ... W^(p+1) Π^p, Π the mean slopes of the activations
    (for ReLU, how often each unit is on). `printed`: the rows of S = W^L ... W^(p+1), orthogonal to 1ᵀS.
    """

    layer: str
    corrected: Tensor
    printed: Tensor
    frequencies: tuple[Tensor, ...]
    logit_map: Tensor  # S_π, (c, m)
    check: str = "unchecked"


@dataclass(frozen=True, eq=False)
class ModelOverlap(Result):
    """Overlap of the top-j eigenspaces of one layer's Hessian, j = 1..k, for every pair of models.

    `measured`: `(pairs, k)`. `permuted`: its exact expectation when the second model's outputs are permuted at random,
    which removes the chance order of hidden units. `linear`: (j/m) (t₁·t₂)² up to m (Theorem G.1), t the top
    eigenvector of E[x xᵀ]. `factors`: the overlap of the two Kronecker approximations. `premise`: whether
    τ_m γ₁ > τ₁ γ₂ holds for every model; `reach`: for how many of its outputs it does.
    """

    layer: str
    outputs: int
    size: int
    pairs: tuple[tuple[int, int], ...]
    measured: Array
    permuted: Array
    linear: Array
    factors: Array
    premise: bool
    reach: tuple[int, ...]
    check: str = "unchecked"

    @property
    def mean(self) -> Array:
        return np.asarray(self.measured.mean(0))

    @property
    def peak(self) -> int:
        """The j at which the mean overlap is largest."""
        return int(self.mean.argmax()) + 1


@dataclass(frozen=True, eq=False)
class LogitGradients(Result):
    """Γ_ij = E[Gᵀ q_j | y = i] of shape `(c, c, m)` and Δ_ij = E[Gᵀ q_j ⊗ x | y = i] of shape `(c, c, m n)`.

    i is the class of the example, j the logit, q_j = √p_j (e_j - p). `share` holds the frequency of each class.
    `output_hessian` is E[M], of which the means explain Σ_i share_i Σ_j Γ_ij Γ_ijᵀ; the rest is the covariance within
    classes (the printed (271) lacks it, and a factor c).
    """

    layer: str
    gamma: Tensor
    delta: Tensor
    share: Array
    output_hessian: Tensor
    check: str = "unchecked"

    def explained(self) -> float:
        """The share of tr E[M] that the class means carry."""
        gamma, hessian = np.asarray(self.gamma), np.asarray(self.output_hessian)
        return float(self.share @ (gamma**2).sum((1, 2)) / hessian.trace())

    def clustering(self, which: str = "gamma") -> tuple[float, float]:
        """(by logit, by class): the share of the variance of the c² vectors that lies between logits, or classes."""
        points = np.asarray(self.points(which))
        centre = points.mean((0, 1))
        total = float(((points - centre) ** 2).sum())
        classes = len(points)
        by_logit = float(((points.mean(0) - centre) ** 2).sum()) * classes / total
        by_class = float(((points.mean(1) - centre) ** 2).sum()) * classes / total
        return by_logit, by_class

    def points(self, which: str) -> Tensor:
        """Γ or Δ."""
        if which not in ("gamma", "delta"):
            refuse("which must be 'gamma' or 'delta'", f"{which!r}", "Gamma lives on outputs, delta on weights.")
        return self.gamma if which == "gamma" else self.delta

    def embedding(self, which: str = "gamma", rng: Rng | int | None = None) -> Array:
        """The c² vectors in the plane by t-SNE, `(c, c, 2)`; needs scikit-learn."""
        try:
            from sklearn.manifold import TSNE
        except ImportError as error:
            raise HesscopeError("t-SNE needs scikit-learn; it is not installed. pip install hesscope[extra]") from error
        points = np.asarray(self.points(which))
        classes = len(points)
        flat = points.reshape(classes**2, -1)
        seed = Rng.of(rng).child("t-sne").key % 2**31
        perplexity = min(10.0, (len(flat) - 1) / 3)
        placed = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(flat)
        return np.asarray(placed, dtype=np.float64).reshape(classes, classes, 2)
