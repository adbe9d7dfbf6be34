"""What an analysis holds: plain arrays and numbers, readable without torch and without the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..measure import Array, AtomicMeasure
from ..result import Result
from .claims import Claim


@dataclass(frozen=True, eq=False)
class MeasuredSpectrum(Result):
    """A measured spectral measure Σ w_i δ(λ_i) of an n x n matrix.

    `error` estimates its W₁ distance from the truth, `mean_stderr` is the standard error of its mean.
    """

    nodes: Array
    weights: Array
    size: int
    error: float
    mean_stderr: float
    products: int

    def measure(self) -> AtomicMeasure:
        return AtomicMeasure(self.nodes, self.weights)


@dataclass(frozen=True, eq=False)
class ExtremeValues(Result):
    """Eigenvalues at both ends with their residuals ‖Hv − λv‖; `gauss_newton` is vᵀGv of each large eigenvector."""

    largest: Array
    largest_residuals: Array
    smallest: Array
    smallest_residuals: Array
    converged: bool
    products: int
    gauss_newton: Array | None = None
    vectors: np.ndarray[Any, Any] | None = None  # (n, k) for the large end, left out when it is big


@dataclass(frozen=True)
class TracePair(Result):
    """tr H and tr G, each with its standard error (0 when exact)."""

    hessian: float
    hessian_stderr: float
    gauss_newton: float | None
    gauss_newton_stderr: float | None
    products: int


@dataclass(frozen=True, eq=False)
class BlockMap(Result):
    """‖H_ij‖_F for every pair of blocks; `layers` names the layer of each block, for outlines."""

    partition: str
    names: tuple[str, ...]
    layers: tuple[str, ...]
    norms: Array
    exact: bool
    stderr: Array | None = None

    @property
    def off_diagonal_share(self) -> float:
        """Σ_{i≠j} ‖H_ij‖² / ‖H‖²: 0 for a block-diagonal matrix."""
        squares = self.norms**2
        return float(1.0 - np.trace(squares) / squares.sum()) if squares.sum() > 0 else 0.0


@dataclass(frozen=True, eq=False)
class LayerDecoupling(Result):
    """How well E[M] ⊗ E[xxᵀ] stands for the Hessian of one layer."""

    layer: str
    size: int
    exact_values: Array
    kronecker_values: Array
    overlap: Array  # of the top-j eigenspaces, j = 1, 2, ...
    frobenius_error: float
    spectral_error: float

    def overlap_at(self, j: int) -> float:
        """The overlap of the top-j spaces (of as many as there are)."""
        return float(self.overlap[min(j, self.overlap.size) - 1])


@dataclass(frozen=True, eq=False)
class TrainingCourse(Result):
    """Numbers at checkpoints along training, one per label."""

    labels: tuple[str, ...]
    loss: Array
    sharpness: Array
    trace: Array
    layer_share: Array  # share of ‖H‖² outside the layers' own blocks


@dataclass(frozen=True, eq=False)
class LawFit(Result):
    """The limit law closest to the measured bulk: name, Kolmogorov distance, where it ends, its density over x."""

    law: str
    distance: float
    edges: tuple[float, float]
    x: Array
    density: Array


@dataclass(frozen=True, eq=False)
class Prediction(Result):
    """What decoupling predicts without a single Hessian product: E[M] ⊗ E[xxᵀ] of every layer, and the outliers.

    `nodes`, `weights`: the spectrum of the block-diagonal Kronecker approximation over all covered layers. `largest`:
    the top eigenvalues of the whole Hessian with every layer's inputs replaced by their mean (empty where that does
    not apply).
    """

    nodes: Array
    weights: Array
    largest: Array

    def measure(self) -> AtomicMeasure:
        return AtomicMeasure(self.nodes, self.weights)


@dataclass(frozen=True)
class SelfCheck(Result):
    """What the self-check of the derivatives said."""

    passed: bool
    method: str
    noise_floor: float
    text: str


@dataclass(frozen=True, eq=False)
class Analysis(Result):
    """Everything `hesscope analyze` measured of one problem, and what it took."""

    title: str
    model: str
    parameters: dict[str, Any]  # name -> shape
    layers: tuple[str, ...]
    classes: int | None
    rows: float  # what the mean of the loss divides by
    loss: float
    gradient_norm: float
    unused: tuple[str, ...]
    verdict: SelfCheck | None
    extremes: ExtremeValues
    traces: TracePair
    spectrum: MeasuredSpectrum
    gauss_newton: MeasuredSpectrum | None
    blocks: tuple[BlockMap, ...]
    decoupling: tuple[LayerDecoupling, ...]
    prediction: Prediction | None
    fit: LawFit | None
    course: TrainingCourse | None
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    settings: dict[str, Any]
    provenance: dict[str, Any]
    products: int
    seconds: float

    @property
    def size(self) -> int:
        return self.spectrum.size

    @property
    def sharpness(self) -> float:
        return float(self.extremes.largest[0])

    @property
    def noise(self) -> float:
        """Below this an eigenvalue cannot be told from zero: rounding of the products, or the residuals."""
        floor = self.verdict.noise_floor if self.verdict else 1e-6
        return max(floor, 1e-7) * abs(self.sharpness)

    @property
    def negative_mass(self) -> float:
        """P(λ < −noise)."""
        return float(self.spectrum.measure().cdf(-self.noise))

    @property
    def negative_weight(self) -> float:
        """Σ_{λ<0} |λ| / Σ |λ|: how much of the curvature is negative."""
        nodes, weights = self.spectrum.nodes, self.spectrum.weights
        total = float(np.abs(nodes) @ weights)
        return float(np.abs(nodes[nodes < 0]) @ weights[nodes < 0]) / total if total > 0 else 0.0

    @property
    def gap(self) -> tuple[int, float]:
        """(j, λ_j / λ_{j+1}) at the widest relative gap among the large eigenvalues: j eigenvalues stand out."""
        values = self.extremes.largest
        if values.size < 3 or values[0] <= 0:
            return 0, 1.0
        values = values[values > 1e-3 * values[0]]
        if values.size < 3:
            return int(values.size), float("inf")
        ratios = values[:-1] / values[1:]
        # The first gap says only that one eigenvalue is larger; two or more are a group.
        place = 1 + int(np.argmax(ratios[1:]))
        return place + 1, float(ratios[place])

    def block_map(self, partition: str) -> BlockMap | None:
        return next((blocks for blocks in self.blocks if blocks.partition == partition), None)
