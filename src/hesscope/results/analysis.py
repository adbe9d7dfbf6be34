"""What an analysis holds: the results of its parts as they came, readable without torch and without the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..result import Result
from .blocks import BlockNorms
from .checks import Verdict
from .claims import Claim
from .history import TrainingHistory
from .kronecker import KroneckerComparison, KroneckerPrediction
from .landscape import Landscape
from .layers import LayerTable
from .plan import AnalysisPlan
from .spectra import Eigenpairs, Estimate, SpectralDensity

if TYPE_CHECKING:
    from ..rmt import Fit


@dataclass(frozen=True, eq=False)
class Analysis(Result):
    """Everything `hesscope analyze` measured of one problem, and what it took."""

    _pictured = True

    title: str
    model: str
    parameters: dict[str, Any]  # name -> shape
    layers: tuple[str, ...]
    classes: int | None
    rows: float  # what the mean of the loss divides by
    loss: float
    gradient_norm: float
    unused: tuple[str, ...]
    verdict: Verdict | None
    largest: Eigenpairs
    smallest: Eigenpairs
    gauss_newton_parts: Estimate | None  # vᵀGv of each large eigenvector
    trace: Estimate
    gauss_newton_trace: Estimate | None
    trace_by_products: Estimate | None  # tr H once more, where the density alone cannot confirm it
    density: SpectralDensity
    gauss_newton_density: SpectralDensity | None
    blocks: tuple[BlockNorms, ...]
    kronecker: tuple[KroneckerComparison, ...]
    prediction: KroneckerPrediction | None
    fit: Fit | None
    history: TrainingHistory | None
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    settings: dict[str, Any]
    provenance: dict[str, Any]
    seconds: float
    landscape: Landscape | None = None
    layer_table: LayerTable | None = None
    plan: AnalysisPlan | None = None

    def table(self) -> dict[str, Any]:
        """The main numbers, each with its error and how it was found."""
        rows: list[tuple[str, float, float, str]] = [
            ("loss", self.loss, 0.0, "one pass over the data"),
            ("gradient norm", self.gradient_norm, 0.0, "one pass over the data"),
            ("λ_max", self.sharpness, float(self.largest.residuals[0]), "Lanczos, residual"),
            ("λ_min", float(self.smallest.values[0]), float(self.smallest.residuals[0]), "Lanczos, residual"),
        ]
        for name, found in (("tr H", self.trace), ("tr G", self.gauss_newton_trace)):
            if found is not None:
                rows.append((name, float(found), float(found.stderr), found.method))
        for norms in self.blocks:
            rows.append(
                (
                    f"share of ‖{norms.letter}‖² between {norms.partition}s",
                    norms.off_diagonal_share,
                    float("nan"),
                    norms.method,
                )
            )
        for d in self.kronecker:
            rows.append((f"Kronecker error of {d.layer}", d.frobenius_error, d.frobenius_stderr, d.curvature))
        return {
            name: list(found)
            for name, found in zip(("what", "value", "±", "method"), zip(*rows, strict=True), strict=True)
        }

    @property
    def size(self) -> int:
        return self.density.size

    @property
    def products(self) -> int:
        """Matrix-vector products of all parts together."""
        along = self.history
        parts: list[Any] = [self.largest, self.smallest, self.gauss_newton_parts, self.trace, self.gauss_newton_trace]
        parts += [self.trace_by_products, self.density, self.gauss_newton_density, *self.blocks, self.landscape]
        parts += [self.layer_table]
        parts += [*along.tops, *along.traces, *along.snapshots] if along else []
        return sum(part.products for part in parts if part is not None)

    @property
    def sharpness(self) -> float:
        return float(self.largest.values[0])

    @property
    def noise(self) -> float:
        """Below this an eigenvalue cannot be told from zero: rounding of the products, or the residuals."""
        floor = self.verdict.noise_floor if self.verdict is not None else 1e-6
        # A failed check measures no floor (NaN); the smallest one is then as good as any.
        return (floor if floor > 1e-7 else 1e-7) * abs(self.sharpness)

    @property
    def negative_mass(self) -> float:
        """P(λ < −noise)."""
        return float(self.density.cdf(-self.noise))

    @property
    def negative_weight(self) -> float:
        """Σ_{λ<0} |λ| / Σ |λ|: how much of the curvature is negative."""
        nodes, weights = self.density.nodes, self.density.weights
        total = float(np.abs(nodes) @ weights)
        return float(np.abs(nodes[nodes < 0]) @ weights[nodes < 0]) / total if total > 0 else 0.0

    @property
    def gap(self) -> tuple[int, float]:
        """(j, λ_j / λ_{j+1}) at the widest relative gap among the large eigenvalues: j eigenvalues stand out."""
        values = self.largest.values
        if values.size < 3 or values[0] <= 0:
            return 0, 1.0
        values = values[values > 1e-3 * values[0]]
        if values.size < 3:
            return int(values.size), float("inf")
        ratios = values[:-1] / values[1:]
        # The first gap says only that one eigenvalue is larger; two or more are a group.
        place = 1 + int(np.argmax(ratios[1:]))
        return place + 1, float(ratios[place])

    def block_norms(self, partition: str) -> BlockNorms | None:
        """The norms of H by "layer" or "neuron", where they were measured."""
        own = (norms for norms in self.blocks if norms.matrix != "gauss_newton")
        return next((norms for norms in own if norms.partition == partition), None)
