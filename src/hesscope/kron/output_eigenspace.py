"""The top eigenspace of the output Hessian from weights and activation frequencies alone (Theorem 4.2, G.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..curvature import Problem
from ..errors import refuse
from ..results.kronecker import PredictedEigenspace
from .layers import find_layer, layer_names
from .tapped import tap


def predicted_output_eigenspace(problem: Problem, layer: str) -> PredictedEigenspace:
    """span of the rows of (I - 11ᵀ/c) S_π: the top c - 1 eigenspace of E[M] without any backward pass per class.

    Needs a chain of Linear layers behind `layer`, with elementwise maps (activations, batch-norm in eval mode) between
    them. The printed form assumes that every unit is on half of the time, which only holds for centred inputs.
    """
    find_layer(problem, layer)
    chain = _chain(problem, layer)
    slopes = _mean_slopes(problem, [name for name, _ in chain])
    product = corrected = torch.eye(len(chain[-1][1]), dtype=torch.float64)
    for (_, weight), slope in zip(reversed(chain[1:]), reversed(slopes), strict=True):
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
    return PredictedEigenspace(layer, basis.contiguous(), printed.contiguous(), tuple(slopes), corrected)


def _chain(problem: Problem, layer: str) -> list[tuple[str, Tensor]]:
    """`layer` and the layers that run after it, with the weights they run with; those behind must be Linear."""
    order: list[tuple[str, Tensor]] = []
    modules = {name: problem.model.get_submodule(name) for name in layer_names(problem)}
    handles = [module.register_forward_hook(_recorder(name, order)) for name, module in modules.items()]
    try:
        with torch.no_grad():
            problem.evaluate(next(iter(problem.batches)), problem.parameters)
    finally:
        for handle in handles:
            handle.remove()
    called = [name for name, _ in order]
    if layer not in called:
        refuse("the layer must be called in the forward pass", f"{layer!r}", "Check the model.")
    chain = order[called.index(layer) :]
    for (_, before), (name, after) in pairwise(chain):
        if not isinstance(modules[name], nn.Linear) or before.ndim != 2 or before.shape[0] != after.shape[1]:
            refuse(
                "the network behind the layer must be a chain of Linear layers with elementwise maps between them",
                f"{name!r} behind {layer!r}",
                "hs.decouple computes E[M] for any network.",
            )
    return chain


def _recorder(name: str, order: list[tuple[str, Tensor]]) -> Callable[..., None]:
    # While the model runs, its modules hold the problem's parameters.
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        weight = module.weight
        assert isinstance(weight, Tensor)
        order.append((name, weight.detach().double().cpu()))

    return hook


def _mean_slopes(problem: Problem, chain: Sequence[str]) -> list[Tensor]:
    """E[∂x_(l+1)/∂z_l], entry by entry, for the maps between successive layers."""
    layers = [find_layer(problem, name) for name in chain]
    totals = [torch.zeros(layer.outputs, dtype=torch.float64) for layer in layers[:-1]]
    count = 0
    for batch in problem.batches:
        tapped = tap(problem, batch, layers, [False] * len(layers))
        count += tapped.seen[0].z.shape[0] * tapped.seen[0].z.shape[1]
        for total, here, after in zip(totals, tapped.seen[:-1], tapped.seen[1:], strict=True):
            x = after.inputs
            (slope,) = torch.autograd.grad(x.sum(), here.z, retain_graph=True, materialize_grads=True)
            total += slope.double().sum((0, 1)).cpu()
    return [total / count for total in totals]
