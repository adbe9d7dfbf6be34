"""What is true of a layer in this model, found by trying: which outputs interact, and whether M = Gᵀ A G is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..curvature import Problem
from ..curvature.data import examples_in, first_examples
from ..curvature.losses.base import OutputLoss
from ..errors import refuse
from ..rng import Rng
from .columns import gauss_newton_columns, row_owners
from .layers import Layer, find_layer
from .tapped import Tapped, tap

Curvature = Literal["auto", "gauss_newton", "second_derivative"]
_EXAMPLES = 12
_DIGITS = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 1e-2}


@dataclass(frozen=True)
class Plan:
    """How a layer's output Hessians are computed: `flat` where every position is independent of the others,
    `gauss_newton` where factors are used, `exact` where they give the second derivative, `in_order` where rows of the
    loss and units of the layer are in one order."""

    layer: Layer
    flat: bool
    gauss_newton: bool
    exact: bool
    in_order: bool
    positions: int  # that interact, in the first batch

    @property
    def curvature(self) -> str:
        """In words, for results."""
        if not self.gauss_newton:
            return "second derivative, exact"
        return "Gauss-Newton factors, exact here" if self.exact else "Gauss-Newton factors, an approximation here"


def plan_layer(problem: Problem, name: str, curvature: Curvature = "auto") -> Plan:
    """Try the layer on a few examples in float64, and refuse what would give a wrong Hessian."""
    if curvature not in ("auto", "gauss_newton", "second_derivative"):
        refuse("curvature must be auto, gauss_newton or second_derivative", f"{curvature!r}", "Leave it at 'auto'.")
    layer = find_layer(problem, name)
    if curvature == "gauss_newton":
        problem.need_outputs("the Gauss-Newton factor of a layer")
    batch = _few(next(iter(problem.batches)))
    sharp = _in_float64(problem, batch)
    layer = find_layer(sharp, name)  # each problem runs its own copy of the model
    _check_own_weight(sharp, batch, layer)
    first = tap(sharp, batch, [layer], [False])
    if len(first.seen[0].z) > 1 and not _independent(sharp, batch, layer, False):
        refuse(
            "examples of a batch must not influence each other behind the layer",
            f"{name!r}, where they do",
            "Put the examples in the first axis of the layer's output, and normalisations in eval mode.",
        )
    flat = first.seen[0].z.shape[1] > 1 and _independent(sharp, batch, layer, True)
    trial = tap(sharp, batch, [layer], [flat])
    has_columns = isinstance(trial.terms, OutputLoss) and trial.terms.columns() > 0
    exact = has_columns and curvature != "second_derivative" and _factors_are_exact(trial)
    if curvature == "gauss_newton" and not has_columns:
        refuse("Gauss-Newton factors need a convex loss with a known factor", "another loss", "Use curvature='auto'.")
    exact_factors = exact or curvature == "gauss_newton"
    return Plan(find_layer(problem, name), flat, exact_factors, exact, _in_order(trial), trial.seen[0].z.shape[1])


def _in_float64(problem: Problem, batch: Any) -> Problem:
    """The problem in float64, where the model can run in it (constants of another type may prevent that)."""
    sharp = problem.cast(torch.float64)
    try:
        with torch.no_grad():
            sharp.evaluate(batch, sharp.parameters)
    except RuntimeError:
        return problem
    return sharp


def _same(a: Tensor, b: Tensor) -> bool:
    size = float(b.abs().max()) if b.numel() else 0.0
    digits = _DIGITS.get(b.dtype, 1e-4)
    return bool(torch.allclose(a, b, rtol=digits, atol=digits * size))


def _few(batch: Any) -> Any:
    return batch if examples_in(batch) is None else first_examples(batch, _EXAMPLES)


def _noise(like: Tensor, *names: object) -> Tensor:
    return torch.randn(like.shape, generator=Rng(0).child("kron", *names).torch(), dtype=torch.float64).to(like)


def _check_own_weight(problem: Problem, batch: Any, layer: Layer) -> None:
    """∂ℓ/∂W must be Σ δ xᵀ: otherwise the weight also acts elsewhere, or the module does something else with it."""
    weight = problem.parameters.get(layer.weight)
    if weight is None:
        return  # frozen: whatever else uses it, the layer's own Hessian is still that of its call
    leaf = weight.detach().requires_grad_()
    tapped = tap(problem, batch, [layer], [False], parameters={**problem.parameters, layer.weight: leaf})
    terms, seen = tapped.terms, tapped.seen[0]
    output, slope = (terms.f, terms.output_gradient()) if isinstance(terms, OutputLoss) else (terms.total, None)
    g, delta = torch.autograd.grad(output, [leaf, seen.z], slope, materialize_grads=True)
    x = seen.patches(tapped.examples)
    m, groups = layer.outputs, layer.groups
    ours = torch.einsum("upgo,upgn->gon", delta.view(*delta.shape[:2], groups, m // groups), x)
    if not _same(ours.reshape(-1), g.reshape(-1)):
        refuse(
            "the layer's weight must act only through z = W x + b of this layer",
            f"{layer.name!r}, whose gradient is not Σ δ xᵀ",
            "It may be shared, reused or rescaled; use hs.Hessian(problem).block(...).",
        )


def _independent(problem: Problem, batch: Any, layer: Layer, flat: bool) -> bool:
    """Whether shifting half of the units leaves the slopes of the others as they were."""
    before = tap(problem, batch, [layer], [flat])
    units = torch.arange(len(before.seen[0].z), device=before.seen[0].z.device)
    chosen = units % 2 == 1 if not flat else _noise(units.double(), "half") > 0
    for half in (chosen, ~chosen):
        shift = _noise(before.seen[0].z, "shift") * before.seen[0].z.std().clamp_min(1e-3) * half[:, None, None]
        after = tap(problem, batch, [layer], [flat], [shift])
        old, new = before.slopes()[0][~half], after.slopes()[0][~half]
        if not _same(new, old):
            return False
    return True


def _factors_are_exact(trial: Tapped) -> bool:
    """Whether Gᵀ A G v is the double-backward product at a random v."""
    z = trial.seen[0].z
    v = _noise(z, "direction")
    (slope,) = trial.slopes(create_graph=True)
    truth = torch.zeros_like(z)
    if slope.requires_grad:
        (truth,) = torch.autograd.grad(slope, z, v, retain_graph=True, materialize_grads=True)
    ours = torch.zeros_like(z)
    for (n,) in gauss_newton_columns(trial, [row_owners(trial, 0)]):
        ours += n * (n * v).sum((1, 2), keepdim=True)
    return _same(ours, truth)


def _in_order(trial: Tapped) -> bool:
    if not isinstance(trial.terms, OutputLoss):
        return True
    owners, z = row_owners(trial, 0), trial.seen[0].z
    known = owners >= 0
    return len(owners) == len(z) and bool((owners == torch.arange(len(z)))[known].all())
