"""The top eigenspace of the output Hessian from weights and activation frequencies alone (Theorem 4.2, G.1)."""

from __future__ import annotations

from itertools import pairwise
from typing import NoReturn

import torch
from torch import Tensor

from ..curvature import Problem
from ..curvature.engines.backward import noise_like
from ..curvature.given_problem import need_one_process
from ..curvature.gradient_mode import differentiable
from ..curvature.proofs.derivatives import prove_hessian, prove_jacobian
from ..errors import refuse
from ..layers import CapturedLayer, LayerFacts, capture, facts_of
from ..layers.capturing import every_parameter
from ..layers.kinds import MatrixKind
from ..layers.kinds.linear import Linear
from ..results.kronecker import PredictedEigenspace
from ..rng import Rng
from .curvature_choice import exact_layer


@differentiable()
def predicted_output_eigenspace(problem: Problem, layer: str) -> PredictedEigenspace:
    """span of the rows of (I - 11ᵀ/c) S_π: the top c - 1 eigenspace of E[M] without any backward pass per class.

    Needs a chain of Linear layers behind `layer`, with elementwise maps (activations, batch-norm in eval mode) between
    them. The printed form assumes that every unit is on half of the time, which only holds for centred inputs.
    """
    exact_layer(need_one_process(problem, "a predicted eigenspace"), layer)
    names = [known.name for known in facts_of(problem).layers.values() if isinstance(known.kind, MatrixKind)]
    chain = [exact_layer(problem, name) for name in names[names.index(layer) :]]
    for here, behind in pairwise(chain):
        if not isinstance(here.kind, Linear) or not isinstance(behind.kind, Linear) or here.outputs != behind.inputs:
            _refuse_chain(layer, behind.name)
    values, slopes = every_parameter(problem), _mean_slopes(problem, chain)
    weights = [one.matrix(values[one.weight or ""]).double().cpu() for one in chain]
    product = corrected = torch.eye(len(weights[-1]), dtype=torch.float64, device="cpu")
    for weight, slope in zip(reversed(weights[1:]), reversed(slopes), strict=True):
        product = product @ weight
        corrected = corrected @ weight * slope
    centred = corrected - corrected.mean(0)
    classes = len(centred)
    if classes < 2:
        refuse("a predicted eigenspace needs at least two outputs", f"{classes}", "It is empty for one.")
    space = min(classes - 1, centred.shape[1])
    basis = torch.linalg.svd(centred, full_matrices=False)[2][:space].T
    ones = product.sum(0)
    length = torch.linalg.vector_norm(ones)
    rest = product if length == 0 else product - torch.outer(product @ ones, ones) / length**2
    printed = torch.linalg.svd(rest, full_matrices=False)[2][:space].T
    bases = basis.contiguous(), printed.contiguous()
    return PredictedEigenspace(layer, *bases, tuple(slopes), corrected, _check(problem))


def _check(problem: Problem) -> str:
    proof = prove_jacobian(problem) if problem.has_outputs else prove_hessian(problem)
    proof.need_right()
    return str(proof)


def _mean_slopes(problem: Problem, chain: list[LayerFacts]) -> list[Tensor]:
    """E[∂x_(l+1)/∂z_l], entry by entry, for the maps between successive layers."""
    totals = [torch.zeros(layer.outputs, dtype=torch.float64, device="cpu") for layer in chain[:-1]]
    count = 0
    for batch in problem.batches:
        run = capture(problem, batch, {layer.name for layer in chain})
        seen = [run.of(layer.name) for layer in chain]
        if any(len(calls) != 1 for calls in seen):
            _refuse_chain(chain[0].name, "layers that run once on some batches only")
        count += seen[0][0].z[..., 0].numel()
        for total, (here,), (behind,) in zip(totals, seen[:-1], seen[1:], strict=True):
            total += _slope(chain[0].name, here, behind).double().flatten(0, -2).sum(0).cpu()
    return [total / count for total in totals]


def _slope(name: str, here: CapturedLayer, behind: CapturedLayer) -> Tensor:
    """∂x/∂z of the map between two layers; refuses one that is not elementwise."""
    x, z = behind.roles.x, here.z
    noise = noise_like(Rng(0).child("kron", "chain"), x)
    if not x.requires_grad or x.shape != z.shape:
        _refuse_chain(name, behind.name)
    slope, mixed = (
        torch.autograd.grad(x, z, cotangent, retain_graph=True, materialize_grads=True)[0]
        for cotangent in (torch.ones_like(x), noise)
    )
    if not torch.allclose(mixed, noise * slope, rtol=1e-3, atol=1e-5 * float(slope.abs().max())):
        _refuse_chain(name, behind.name)
    return slope


def _refuse_chain(layer: str, behind: str) -> NoReturn:
    refuse(
        "the network behind the layer must be a chain of Linear layers with elementwise maps between them",
        f"{behind!r} behind {layer!r}",
        "hs.decouple computes E[M] for any network.",
    )
