"""The decoupling conjecture: E[M ⊗ x xᵀ] ≈ E[M] ⊗ E[x xᵀ]."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from ..curvature import Problem
from ..errors import refuse
from ..operators import Kronecker
from ..rng import Rng
from ..tables import Tabular, plain
from .chunked.moments import Moments, gather_moments
from .curvature_choice import Curvature, LayerCurvature, layer_curvature, matrix_layers
from .directions import Directions
from .layer_operator import LayerHessian
from .layer_proof import factors_proven
from .nearest import NearestKronecker, nearest_kronecker
from .subspaces import top_of_kronecker

if TYPE_CHECKING:
    from ..results.kronecker import KroneckerComparison, KroneckerErrors

Reduction = Literal["expand", "reduce", "kfac_reduce"]


@dataclass(frozen=True, eq=False)
class Decoupling(Tabular):
    """E[M], E[x xᵀ] and E[x] of one layer (float64), with what it takes to compare them with the exact Hessian.

    With P > 1 interacting positions, `reduction` says how P m x P m matrices M became m x m:
    "expand" is the paper's (33), which is K-FAC expand: (1/P) Σ_p M_pp ⊗ Σ_p x_p x_pᵀ;
    "reduce" is (1/P) Σ_ts M_ts ⊗ Σ_p x_p x_pᵀ; "kfac_reduce" is Σ_ts M_ts ⊗ x̄ x̄ᵀ.
    """

    _pictured = True

    layer: str
    curvature: str  # how M was computed, and whether that is exact
    reduction: Reduction
    positions: int
    input_mean: Tensor
    mean_direction: Tensor  # Ê[x]: E[x] normalised; for positions, the first left singular vector of E[X]
    problem: Problem
    _how: LayerCurvature
    _moments: Moments
    check: str = "unchecked"

    def table(self) -> dict[str, Any]:
        """The eigenvalues of both factors, largest first; what is not there is left empty."""
        found = [torch.linalg.eigvalsh(factor).flip(0).tolist() for factor in self._factors]
        most = max(map(len, found))
        outputs, inputs = ([*values, *[float("nan")] * (most - len(values))] for values in found)
        return {"rank": list(range(1, most + 1)), "E[M]": outputs, "E[xxᵀ]": inputs}

    def to_dict(self) -> dict[str, Any]:
        """The factors and what they are of, as plain numbers."""
        names = (
            "layer",
            "curvature",
            "reduction",
            "positions",
            "output_hessian",
            "input_autocorrelation",
            "input_mean",
        )
        return {name: plain(getattr(self, name)) for name in names}

    @property
    def _factors(self) -> tuple[Tensor, Tensor]:
        return self.output_hessian, self.input_autocorrelation

    def __repr__(self) -> str:
        (m, _), (n, _) = (tuple(factor.shape) for factor in self._factors)
        return f"Decoupling({self.layer!r}, E[M] {m} x {m}, E[xxᵀ] {n} x {n}, {self.reduction}, {self.curvature})"

    @property
    def weight(self) -> str:
        """The name of the parameter."""
        return str(self._how.layer.weight)

    @property
    def output_hessian(self) -> Tensor:
        """E[M], m x m."""
        if self.reduction == "expand":
            return self._moments.expanded
        return self._moments.reduced

    @property
    def output_hessian_stderr(self) -> float:
        """How far E[M] is from what every output direction would give, in Frobenius norm; 0 where it is exactly that."""
        return self._moments.stderr if self.reduction == "expand" else self._moments.reduced_stderr

    @property
    def input_autocorrelation(self) -> Tensor:
        """E[x xᵀ], n x n."""
        return self._moments.mean_inputs if self.reduction == "kfac_reduce" else self._moments.inputs

    @property
    def operator(self) -> Kronecker:
        """E[M] ⊗ E[x xᵀ] in the problem's dtype, on its device; symmetric."""
        device, dtype = self.problem.device, self.problem.dtype
        return Kronecker(self.output_hessian.to(device, dtype), self.input_autocorrelation.to(device, dtype))

    @cached_property
    def exact(self) -> LayerHessian:
        """E[M ⊗ x xᵀ]."""
        return LayerHessian(self.problem, self._how)

    def with_reduction(self, reduction: Reduction) -> Decoupling:
        """The same sums read in another way."""
        if reduction not in ("expand", "reduce", "kfac_reduce"):
            refuse("reduction must be expand, reduce or kfac_reduce", f"{reduction!r}", "See hs.decouple.")
        other = replace(self, reduction=reduction)
        if "exact" in self.__dict__:
            other.__dict__["exact"] = self.exact
        return other

    def eigenpairs(self, k: int) -> tuple[Tensor, Tensor]:
        """The k largest eigenvalues of E[M] ⊗ E[x xᵀ] and their vectors `(mn, k)`, exactly, from those of the factors."""
        return top_of_kronecker(self.output_hessian, self.input_autocorrelation, k)

    def alignment(self) -> float:
        """(v₁ᵀ Ê[x])², with v₁ the top eigenvector of E[x xᵀ] (Tables 6, 7, 9)."""
        v = torch.linalg.eigh(self.input_autocorrelation)[1][:, -1]
        return float((v @ self.mean_direction) ** 2)

    def spectral_ratio(self) -> float:
        """λ₁/λ₂ of E[x xᵀ]."""
        values = torch.linalg.eigvalsh(self.input_autocorrelation)
        return float(values[-1] / values[-2]) if len(values) > 1 else float("inf")

    def compare(self, k: int = 50, tol: float = 1e-3) -> KroneckerComparison:
        """Eigenvalues, overlap of top spaces, spectral and Frobenius error of the conjecture; see `KroneckerComparison`."""
        from .comparison import compare

        return compare(self, k, tol)

    def nearest(self) -> NearestKronecker:
        """The nearest Kronecker product of the exact Hessian (Van Loan), from E[M] as a guess; kept with `.exact`."""
        memo = self.exact.memo
        if "nearest" not in memo:
            memo["nearest"] = nearest_kronecker(self.exact, self.output_hessian)
        return cast(NearestKronecker, memo["nearest"])

    def errors(self) -> KroneckerErrors:
        """The errors of every Kronecker form: expand (33), reduce, K-FAC reduce, and the nearest one."""
        from .comparison import kronecker_errors

        return kronecker_errors(self)


def decouple(
    problem: Problem,
    layer: str,
    *,
    reduction: Reduction = "expand",
    curvature: Curvature = "auto",
    directions: Directions = "auto",
    rng: Rng | int | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Decoupling:
    """E[M] ⊗ E[x xᵀ] ≈ E[M ⊗ x xᵀ], the layer's Hessian; expectations over what the loss counts.

    One pass over the data: a forward, and one backward pass per class behind the layer where that is piecewise linear
    (M = Gᵀ A G is then exact), else one double-backward pass per output; the result says which. Use `decouple_layers`
    for several layers at the price of one. Memory is bounded by `Problem.of(memory=...)`. `resume`: a folder; the same
    call goes on where a stopped one was.

    Over many interacting positions, as in a transformer, either takes a pass per position and output. Where that is more
    than seconds, E[M] is that of the Gauss-Newton matrix from 16 random output directions, each one backward pass with
    all positions at once: unbiased, with `output_hessian_stderr`. `directions` is their number, or "all" for every one;
    `curvature="second_derivative"` insists on those.
    Wu et al. (2022), Sections 2, 3 and A.2; docs/theory/decoupling.md.
    """
    found = decouple_layers(problem, [layer], curvature=curvature, directions=directions, rng=rng, resume=resume)
    return found[layer].with_reduction(reduction)


def decouple_layers(
    problem: Problem,
    layers: Sequence[str] | None = None,
    *,
    curvature: Curvature = "auto",
    directions: Directions = "auto",
    rng: Rng | int | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> dict[str, Decoupling]:
    """`decouple` for several layers in one pass over the data; by default for all that can be decoupled."""
    if layers is not None and (isinstance(layers, str) or not isinstance(layers, Sequence)):
        refuse("layers must be a list of names", f"{layers!r}", "Pass ['name'], or leave it out for all.")
    if layers is not None and not layers:
        refuse("there must be at least one layer", "none", "Leave layers out for all.")
    names = list(layers) if layers is not None else [layer.name for layer in matrix_layers(problem)]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        refuse("each layer must be named once", f"{repeated[0]!r} several times", "Drop the repetition.")
    chosen = [layer_curvature(problem, name, curvature, directions) for name in names]
    for how in chosen:
        if how.layer.groups > 1:
            refuse(
                "a decoupled layer must give every output the same input",
                f"{how.layer.name!r}, a convolution with {how.layer.groups} groups",
                "hs.layer_hessian is exact for it.",
            )
    check = factors_proven(problem, chosen)
    found = gather_moments(problem, chosen, resume, Rng.of(rng))
    return {
        how.layer.name: Decoupling(
            how.layer.name,
            how.curvature,
            "expand",
            how.positions,
            moments.mean,
            _direction(moments),
            problem,
            how,
            moments,
            check,
        )
        for how, moments in zip(chosen, found, strict=True)
    }


def _direction(moments: Moments) -> Tensor:
    if moments.by_position is None:
        return torch.div(moments.mean, torch.linalg.vector_norm(moments.mean).clamp_min(1e-300))
    first: Tensor = torch.linalg.svd(moments.by_position, full_matrices=False).Vh[0]
    return first
