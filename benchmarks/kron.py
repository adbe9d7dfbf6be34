"""Kronecker factors, layer-Hessian products and eigenpairs against curvlinops' K-FAC and autodiff."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hesscope.curvature import Hessian, Problem
from hesscope.kron import decouple_layers, layer_hessian
from hesscope.linalg import eigenpairs
from hesscope.rng import Rng

from . import models
from .timing import Row, interleaved, once

_REMAINS = (
    "the layer's own two matrix products, 4 m n operations per example, remain of the about 8 of double backward, so "
    "the gain of a wide first layer is bounded by its share; behind it, by reading the factors"
)


def rows(quick: bool = False) -> list[Row]:
    """All comparisons; `quick` takes a fiftieth of the data, to see that everything runs."""
    return [*factors(quick), *products(quick), *eigen(quick)]


def factors(quick: bool = False) -> list[Row]:
    """E[M] and E[x xᵀ] of all layers of 784-512-512-10 over 60,000 examples, exact sums over the classes in both."""
    model, x, y = models.wide_mlp(1200 if quick else 60000)
    problem = Problem.of(model, "cross_entropy", (x, y))
    jobs: dict[str, Any] = {"ours": lambda: decouple_layers(problem)}
    try:
        from curvlinops import KFACLinearOperator
    except ImportError:
        return []
    batches = list(zip(torch.split(x, 1024), torch.split(y, 1024), strict=True))
    probe = torch.randn(sum(p.numel() for p in model.parameters()), generator=Rng(1).torch())

    def theirs() -> Any:
        op = KFACLinearOperator(
            model, nn.CrossEntropyLoss(), list(model.parameters()), batches, fisher_type="type-2",
            kfac_approx="expand", check_deterministic=False,
        )  # fmt: skip
        return op @ probe  # the factors are computed by the first product, which itself is cheap

    found = interleaved(jobs | {"curvlinops": theirs}, repeats=3, warm_up=False)
    return [_row("factors of all layers", found["ours"], "curvlinops K-FAC type-2", found["curvlinops"], 2.0)]


def products(quick: bool = False) -> list[Row]:
    """H v for one layer: GEMMs, against double backward from scratch and through our kept graph."""
    count = 500 if quick else 10000
    cases = [
        ("F-200^2", *models.f200(count), ("fc1", "fc2", "fc3")),
        ("LeNet5", *models.lenet5(count // 5), ("conv1", "conv2", "fc1")),
    ]
    out = []
    for network, model, x, y, layers in cases:
        problem = Problem.of(model, "cross_entropy", (x, y))
        for layer in layers:
            op, kept = layer_hessian(problem, layer), Hessian(problem).block(f"{layer}.weight")
            v = torch.randn(op.shape[1], generator=Rng(2).torch())
            weight = model.get_submodule(layer).weight
            jobs = {
                "ours": lambda op=op, v=v: op @ v,
                "autodiff": lambda m=model, w=weight, v=v, x=x, y=y: _double_backward(m, w, [w], v, x, y),
                "cut": lambda m=model, w=weight, v=v, x=x, y=y: _double_backward(m, w, list(m.parameters()), v, x, y),
                "kept graph": lambda kept=kept, v=v: kept @ v,
            }
            found = interleaved(jobs, repeats=3)
            name = f"product with {layer} of {network}, {len(x)} examples"
            restricted = _row(name, found["ours"], "autodiff restricted to the layer", found["autodiff"], 5.0)
            out.append(restricted if restricted.met else replace(restricted, note=_REMAINS))
            out.append(_row(name, found["ours"], "autodiff of the whole Hessian, cut", found["cut"], float("nan")))
            out.append(_row(name, found["ours"], "our own kept graph", found["kept graph"], float("nan")))
    return out


def eigen(quick: bool = False) -> list[Row]:
    """The 50 largest eigenpairs of fc1 of F-200^2 on all of MNIST, inputs and factors included; against a minute."""
    model, x, y = models.f200(1200 if quick else 60000)
    problem = Problem.of(model, "cross_entropy", (x, y))
    seconds, _ = once(lambda: eigenpairs(layer_hessian(problem, "fc1"), k=50, tol=1e-3))
    return [_row(f"50 eigenpairs of fc1, {len(x)} examples", seconds, "one minute", 60.0, 1.0)]


def _double_backward(model: nn.Module, weight: Tensor, wrt: list[Tensor], v: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """H v by double backward in the parameters `wrt`, of which only the part of `weight` is kept."""
    total = torch.zeros_like(weight)
    tangents = [v.view_as(p) if p is weight else torch.zeros_like(p) for p in wrt]
    for inputs, targets in zip(torch.split(x, 1024), torch.split(y, 1024), strict=True):
        loss = F.cross_entropy(model(inputs), targets, reduction="sum")
        gradients = torch.autograd.grad(loss, wrt, create_graph=True)
        found = torch.autograd.grad(gradients, wrt, tangents, materialize_grads=True)
        total += next(part for part, p in zip(found, wrt, strict=True) if p is weight)
    return total / len(x)


def _row(name: str, seconds: float, other: str, other_seconds: float, target: float) -> Row:
    ratio = other_seconds / seconds
    goal = "none" if isnan(target) else f">= {target:.3g}x faster"
    return Row(name, f"{seconds:.3g} s", f"{ratio:.3g}x longer ({other})", ratio, goal, not ratio < target)
