"""What proves a layer's products: on a few examples in float64 they are those of plain double backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..curvature import Problem
from ..curvature.losses.base import OutputLoss
from ..curvature.proofs.derivatives import prove_hessian, prove_jacobian
from ..errors import refuse
from ..layers.capturing import every_parameter
from ..layers.proof import ROUNDING, TOLERANCE, pulled_back, second_derivative_product
from ..operators import LinearOperator
from ..rng import Rng
from .curvature_choice import LayerCurvature

_KNOWN: WeakKeyDictionary[Problem, dict[tuple[str, bool, bool], str]] = WeakKeyDictionary()
_BY_DOUBLE_BACKWARD = "gradients and second derivatives from layer inputs equal double backward on a few examples"


def proven(problem: Problem, how: LayerCurvature, on_probe: Callable[[], LinearOperator]) -> str:
    """What was verified of a layer's products, in words; found once per problem. `on_probe`: its operator there.

    Refuses products that are not those of plain double backward, and double backward that is not that of differences.
    """
    known = _KNOWN.setdefault(problem, {})
    key = how.layer.name, how.gauss_newton, how.directions > 0
    if key not in known:
        known[key] = _prove(problem, how, on_probe())
    return known[key]


def _prove(problem: Problem, how: LayerCurvature, op: LinearOperator) -> str:
    derivatives = _derivatives(problem, how)
    v = torch.randn(op.shape[1], 1, generator=Rng(0).child("kron", "proof").torch(), dtype=torch.float64, device="cpu")
    v = v.to(op.device, op.dtype)
    ours = op.apply(v)[:, 0]
    truth, gradient = plain_product(problem.probe, how, v[:, 0])
    size, gap = float(truth.abs().max()), float((ours - truth).abs().max())
    rounding = ROUNDING.get(op.dtype, 1e-5) * gradient
    if not gap <= max(TOLERANCE.get(op.dtype, 1e-3) * size, rounding):
        refuse(
            "a layer's products must be those of double backward",
            f"{how.layer.name!r}, where they are {gap / max(size, 1e-300):.0e} off on a few examples",
            "Use hs.Hessian(problem).block(...) for it.",
        )
    return f"layer products equal double backward on a few examples; {derivatives}"


def _derivatives(problem: Problem, how: LayerCurvature) -> str:
    """What is known of torch's derivatives in this layer; refuses wrong ones.

    Factors that are called exact are so by double backward, which said that nothing curves behind the layer.
    """
    weight = how.layer.weight
    block = problem.only((weight,)) if weight in problem.parameters else problem
    proofs = [prove_jacobian(block)] if how.gauss_newton else []
    proofs += [prove_hessian(block)] if how.exact else []
    for proof in proofs:
        proof.need_right()
    return "; ".join(str(proof) for proof in proofs)


def factors_proven(problem: Problem, layers: Sequence[LayerCurvature]) -> str:
    """What was verified of inputs and output Hessians of these layers; refuses wrong derivatives.

    Of the whole problem where its derivatives are right, which is known already in most cases; else layer by layer.
    """
    proofs = [prove_hessian(problem)] if any(how.exact for how in layers) else []
    proofs += [prove_jacobian(problem)] if any(how.gauss_newton for how in layers) else []
    if not all(proof.right for proof in proofs):
        for how in layers:
            _derivatives(problem, how)
    return "; ".join([_BY_DOUBLE_BACKWARD, *(str(proof) for proof in proofs if proof.right)])


def plain_product(problem: Problem, how: LayerCurvature, v: Tensor) -> tuple[Tensor, float]:
    """H v (G v for factors that are an approximation) by autograd alone, and the size of the gradient."""
    layer, total, size = how.layer, torch.zeros_like(v), 0.0
    direction = layer.stored(v.view(layer.outputs, layer.inputs))
    with torch.inference_mode(False), torch.enable_grad():
        for batch in problem.batches:
            values = every_parameter(problem)
            leaf = values[layer.weight or ""].clone().requires_grad_()
            terms = problem.evaluate(batch, {**values, layer.weight or "": leaf})
            output = terms.f if isinstance(terms, OutputLoss) else terms.total
            if not output.requires_grad:
                continue
            cotangent = terms.differentiable_output_gradient() if isinstance(terms, OutputLoss) else None
            (gradient,) = torch.autograd.grad(
                output, leaf, cotangent, create_graph=True, retain_graph=True, materialize_grads=True
            )
            size = max(size, float(gradient.detach().abs().max()))
            if not how.exact and isinstance(terms, OutputLoss):
                product = _gauss_newton_product(terms, leaf, direction)
            else:
                product = second_derivative_product(gradient, leaf, direction)
            total += layer.matrix(product).reshape(-1)
    return total * problem.scale, size


def _gauss_newton_product(terms: OutputLoss, leaf: Tensor, direction: Tensor) -> Tensor:
    """Jᵀ A J v, with J v as the derivative of Jᵀ u in u."""
    u, pulled = pulled_back(terms.f, leaf)
    image = second_derivative_product(pulled, u, direction)
    (found,) = torch.autograd.grad(terms.f, leaf, terms.curvature(image), retain_graph=True, materialize_grads=True)
    return found
