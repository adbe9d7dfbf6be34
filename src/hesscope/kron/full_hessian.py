"""Eigenpairs of the full Hessian from output Hessians and mean inputs (Appendix C)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..curvature import Problem
from ..curvature.given_problem import need_one_process
from ..curvature.gradient_mode import differentiable
from ..errors import refuse
from ..layers import LayerFacts
from ..operators.finite import need_finite
from ..results.kronecker import FullApproximation
from .chunked.chunks import ChunkedData
from .chunked.columns import unit_weights
from .chunked.grams import GramSum
from .curvature_choice import LayerCurvature, layer_curvature, matrix_layers
from .layer_proof import factors_proven
from .subspaces import check_k


@differentiable()
def approximate_full_eigenpairs(
    problem: Problem, k: int = 50, *, form: Literal["principled", "printed"] = "principled"
) -> FullApproximation:
    """λ_i, v_i of H ≈ B E[M] Bᵀ with B = blkdiag(I ⊗ E[x̃]): inputs x̃ = (x, 1) replaced by their means.

    "principled": the exact eigenpairs of that matrix, (λ, B S^(-1/2) q) for eigenpairs (λ, q) of S^(1/2) E[M] S^(1/2),
    S = BᵀB. "printed": the paper's (261)-(263), eigenpairs (σ, u) of E[M], λ = σ |B u|², vectors made orthonormal; it
    differs where layers have inputs of different length. Gauss-Newton throughout, as in (255). One pass over the data,
    memory Σ m squared. Parameters outside of Linear and convolution layers get zeros. Over positions, the sum of the
    output gradients and the mean input stand in.
    """
    if form not in ("principled", "printed"):
        refuse("form must be 'principled' or 'printed'", f"{form!r}", "The printed one is Appendix C as it stands.")
    need_one_process(problem, "an approximation of the full Hessian")
    layers = [layer for layer in matrix_layers(problem) if layer.weight in problem.parameters]
    size = sum(layer.outputs for layer in layers)
    check_k(k, size)
    chosen = [layer_curvature(problem, layer.name, "gauss_newton") for layer in layers]
    check = factors_proven(problem, chosen)
    hessian, means = _outputs_and_means(problem, chosen)
    extended = [_extended(problem, layer, mean) for layer, mean in zip(layers, means, strict=True)]
    norms = torch.stack([torch.linalg.vector_norm(e) for e in extended])
    per_output = torch.cat([norm.expand(layer.outputs) for norm, layer in zip(norms, layers, strict=True)])
    need_finite(hessian * per_output, "the factors of a layer")
    if form == "principled":
        values, q = torch.linalg.eigh(per_output[:, None] * hessian * per_output)
        values, coefficients = values.flip(0)[:k], q.flip(1)[:, :k] / per_output[:, None].clamp_min(1e-300)
    else:
        sigma, u = torch.linalg.eigh(hessian)
        sigma, coefficients = sigma.flip(0)[:k], u.flip(1)[:, :k]
        values = sigma * (per_output[:, None] * coefficients).square().sum(0)
    vectors = _lift(problem, layers, extended, coefficients)
    if form == "printed":
        vectors = torch.linalg.qr(vectors)[0]
    names = tuple(layer.name for layer in layers)
    return FullApproximation(values.numpy(), vectors, names, hessian, norms.numpy(), form, check)


def _outputs_and_means(problem: Problem, chosen: list[LayerCurvature]) -> tuple[Tensor, list[Tensor]]:
    """E[M] over all outputs at once, and E[x] of every layer."""
    layers = [how.layer for how in chosen]
    if any(how.flat for how in chosen):
        refuse(
            "all layers must see the same examples one by one",
            "layers over tokens whose positions do not interact",
            "Use hs.decouple layer by layer.",
        )
    data = ChunkedData(problem, chosen)
    size = sum(layer.outputs for layer in layers)
    hessian = GramSum(size)
    means = [torch.zeros(layer.inputs, dtype=torch.float64, device="cpu") for layer in layers]
    weight = 0.0
    for chunk in data.chunks():
        run = data.run(chunk)
        owners = data.owners(run)
        assert owners is not None
        for columns in data.columns(run, owners):
            hessian.add(torch.cat([n.sum(1) for n in columns], -1))
        hessian.settle()
        w = unit_weights(run, 0, owners[0])
        weight += float(w.sum())
        for i, mean in enumerate(means):
            x = run.patches(i).squeeze(2).mean(1)
            mean += (w.to(x) @ x).double().cpu()
    return hessian.value() * problem.scale, [mean / weight for mean in means]


def _extended(problem: Problem, layer: LayerFacts, mean: Tensor) -> Tensor:
    """E[x̃] = (E[x], 1), or E[x] where the bias is missing or not selected."""
    has_bias = layer.bias in problem.parameters
    return torch.cat([mean, torch.ones(1, dtype=torch.float64, device="cpu")]) if has_bias else mean


def _lift(problem: Problem, layers: list[LayerFacts], extended: list[Tensor], coefficients: Tensor) -> Tensor:
    """B c in the problem's order of parameters: weights u ⊗ E[x], biases u."""
    out = torch.zeros(problem.space.size, coefficients.shape[1], dtype=torch.float64, device="cpu")
    start = 0
    for layer, mean in zip(layers, extended, strict=True):
        part = coefficients[start : start + layer.outputs]
        start += layer.outputs
        assert layer.weight is not None
        matrices = torch.einsum("mk,n->kmn", part, mean[: layer.inputs])
        weight = torch.stack([layer.stored(matrix).reshape(-1) for matrix in matrices], -1)
        out[problem.space.slice_of(layer.weight)] = weight
        if len(mean) > layer.inputs:
            assert layer.bias is not None
            out[problem.space.slice_of(layer.bias)] = part
    return out
