"""How the facade asks its parts: each function turns one part's answer into the plain arrays of an analysis."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from torch import nn

from ..curvature import Problem
from ..curvature.self_check import check
from ..errors import HesscopeError, InputError
from ..kron import Decoupling, approximate_full_eigenpairs, decouple, decouple_layers
from ..kron.plan import plan_layer
from ..measure import Array, AtomicMeasure
from ..partition import Kind, Partition
from ..results.analysis import BlockMap as BlockMap
from ..results.analysis import LawFit
from ..results.analysis import LayerDecoupling as LayerDecoupling
from ..results.analysis import Prediction as Prediction
from ..results.analysis import SelfCheck as SelfCheck
from ..rmt import fit
from ..structure import block_norms


def verdict_of(problem: Problem) -> SelfCheck:
    """The self-check of the derivatives, in the form that results keep."""
    found = check(problem)
    return SelfCheck(found.passed, found.method, found.noise_floor, str(found))


def layers_of(problem: Problem) -> tuple[str, ...]:
    """The modules that own selected parameters, in order."""
    return tuple(dict.fromkeys(name.rpartition(".")[0] or name for name in problem.space.names))


def block_count(problem: Problem, kind: Kind) -> int:
    return Partition.by(kind, problem).count


def block_map(problem: Problem, kind: Kind) -> BlockMap:
    """‖H_ij‖_F between the blocks of one kind."""
    found = block_norms(problem, kind)
    return BlockMap(kind, found.names, found.layers, found.norms, found.exact, None if found.exact else found.stderr)


def layer_share(problem: Problem) -> float:
    """The share of ‖H‖² between layers; NaN where there is one layer only."""
    return block_map(problem, "layer").off_diagonal_share if block_count(problem, "layer") > 1 else float("nan")


def kronecker_layers(problem: Problem) -> list[str]:
    """Linear and convolutional layers whose weight is selected, and that give every output the same inputs."""
    return [
        name
        for name, module in problem.model.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d)
        and getattr(module, "groups", 1) == 1
        and f"{name}.weight" in problem.space.names
    ]


def second_derivative_passes(problem: Problem, layer: str) -> int:
    """How many backward passes per batch E[M] of this layer takes, where factors do not give it."""
    try:
        plan = plan_layer(problem, layer)
    except HesscopeError:
        return 0  # `decouplings` leaves such a layer out
    return 0 if plan.gauss_newton else plan.positions * plan.layer.outputs


def decouplings(problem: Problem, layers: list[str]) -> dict[str, Decoupling]:
    """E[M] and E[xxᵀ] of these layers, in one pass; layers that cannot be taken apart are left out."""
    try:
        return decouple_layers(problem, layers) if layers else {}
    except HesscopeError:
        pass
    found = {}
    for layer in layers:
        with suppress(HesscopeError):
            found[layer] = decouple(problem, layer)
    return found


def layer_decoupling(d: Decoupling, k: int) -> LayerDecoupling:
    """The exact layer Hessian against E[M] ⊗ E[xxᵀ]."""
    size = d.exact.shape[0]
    found = d.compare(min(k, size))
    return LayerDecoupling(
        layer=d.layer,
        size=size,
        exact_values=found.eigenvalues,
        kronecker_values=found.approximate_eigenvalues,
        overlap=found.overlap,
        frobenius_error=found.frobenius_error,
        spectral_error=found.spectral_error,
    )


def predict(problem: Problem, parts: list[Decoupling], k: int) -> Prediction:
    """The spectrum of ⊕ E[M] ⊗ E[xxᵀ] over the layers, and the top eigenvalues with inputs replaced by their means."""
    measures, sizes = [], []
    for d in parts:
        outer, inner = (np.linalg.eigvalsh(m.cpu().numpy()) for m in (d.output_hessian, d.input_autocorrelation))
        measures.append(_thin(np.multiply.outer(_thin(outer), _thin(inner)).ravel()))
        sizes.append(outer.size * inner.size)
    whole = AtomicMeasure.mixture([AtomicMeasure.of(m) for m in measures], np.array(sizes) / sum(sizes))
    largest = np.zeros(0)
    with suppress(HesscopeError):
        outputs = sum(d.output_hessian.shape[0] for d in parts)
        largest = approximate_full_eigenpairs(problem, min(k, outputs)).values
    return Prediction(whole.nodes, whole.weights, largest)


def _thin(values: Array, most: int = 2000) -> Array:
    """As many order statistics as a picture can show, with both ends."""
    ordered = np.sort(values)
    if ordered.size <= most:
        return ordered
    chosen: Array = ordered[np.linspace(0, ordered.size - 1, most).round().astype(int)]
    return chosen


def fit_law(measure: AtomicMeasure, size: int, points: int = 400) -> LawFit | None:
    """The limit law closest to the bulk in Kolmogorov distance; None where the spectrum is too small to fit one."""
    try:
        best = fit(measure, size)
    except InputError:
        return None
    found = min((best, *best.alternatives), key=lambda candidate: candidate.kolmogorov)
    low, high = (float(q) for q in found.law.quantile([1e-4, 1 - 1e-4]))
    x = np.linspace(low, high, points)
    return LawFit(found.family.replace("_", "-"), found.kolmogorov, (low, high), x, np.asarray(found.law.density(x)))
