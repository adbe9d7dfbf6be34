"""What is true of each layer in this problem, proven once on a few of the user's own examples, in float64.

A layer is exact where its weight acts through this one call only, examples do not see each other, and the gradient and
a product with its block of the Hessian, both computed from what the layer was given, are those of plain double backward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..curvature.data import examples_in, first_examples
from ..curvature.losses.base import OutputLoss
from ..curvature.problem import Problem
from ..errors import refuse
from ..rng import Rng
from .arrangement import Arrangement
from .capture import Capture, CapturedLayer, capture, every_parameter
from .kinds import Kind, MatrixKind
from .kinds.base import output_change, parameter_gradients

# One policy: relative to the larger side, in float64 (where a model cannot run in it, its own rounding decides).
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3}
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5}


@dataclass(frozen=True, eq=False)
class LayerFacts:
    """One layer: `exact` where all proofs hold, else `reason` says which did not.

    `gauss_newton`: the second derivative in its output is Jᵀ(∂²ℓ/∂f²)J, so that factors of the loss give it.
    `positions_apart`: positions of one example do not interact behind the layer.
    """

    name: str
    kind: Kind
    weight: str | None
    bias: str | None
    weight_shape: tuple[int, ...]
    groups: int
    positions: int
    input_examples: Arrangement
    output_examples: Arrangement
    exact: bool
    gauss_newton: bool
    positions_apart: bool
    reason: str = ""

    @property
    def outputs(self) -> int:
        """m: rows of the weight as a matrix."""
        return self._matrix[0]

    @property
    def inputs(self) -> int:
        """n: columns of the weight as a matrix."""
        return self._matrix[1]

    @property
    def size(self) -> int:
        return self.outputs * self.inputs

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(name for name in (self.weight, self.bias) if name)

    @property
    def multiplies(self) -> bool:
        """Whether its weight is a matrix that multiplies an input at every position."""
        return isinstance(self.kind, MatrixKind) and self.weight is not None

    @property
    def _matrix(self) -> tuple[int, int]:
        assert isinstance(self.kind, MatrixKind)
        m, n = self.kind.as_matrix(torch.empty(self.weight_shape, device="meta")).shape
        return int(m), int(n)


@dataclass(frozen=True, eq=False)
class ProblemFacts:
    """Every layer that was seen, in the order they ran, and why the other parameters belong to none."""

    layers: dict[str, LayerFacts]
    reasons: dict[str, str]

    @property
    def exact(self) -> list[LayerFacts]:
        """The layers that may be used as structure."""
        return [layer for layer in self.layers.values() if layer.exact]

    def layer(self, name: str) -> LayerFacts:
        """One layer by name, exact or not; refuses a name that is none."""
        if name not in self.layers:
            known = ", ".join(list(self.layers)[:12]) or "none"
            because = next((why for parameter, why in self.reasons.items() if parameter.startswith(f"{name}.")), "")
            refuse(
                "a layer must use its parameters in a way that is understood",
                f"{name!r}{': ' + because if because else ''}",
                f"Layers here: {known}.",
            )
        return self.layers[name]

    def covered(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these parameters that an exact layer owns."""
        own = {name for layer in self.exact for name in layer.parameters}
        return tuple(name for name in names if name in own)


_KNOWN: WeakKeyDictionary[Problem, ProblemFacts] = WeakKeyDictionary()


def facts_of(problem: Problem) -> ProblemFacts:
    """The facts about the layers of this problem; found once, then remembered with it."""
    if problem not in _KNOWN:
        _KNOWN[problem] = _find(problem)
    return _KNOWN[problem]


def _find(problem: Problem) -> ProblemFacts:
    probe = problem.probe
    batch = next(iter(probe.batches))
    whole = capture(probe, batch)
    once, reasons = _used_once(whole, tuple(every_parameter(probe)))
    examples = examples_in(batch)
    if examples is None or not problem.divisible:
        return _refused(once, reasons, "examples of a batch influence each other, or cannot be told apart")
    fewer = max(1, examples // 2)
    if fewer == examples:
        return _refused(once, reasons, "one example does not show how examples are arranged")
    part = capture(probe, first_examples(batch, fewer))
    proof = _Proof(probe, batch, whole, part, examples, fewer)
    found = {name: proof.facts(layer) for name, layer in once.items()}
    return ProblemFacts(found, reasons)


def _used_once(run: Capture, names: tuple[str, ...]) -> tuple[dict[str, CapturedLayer], dict[str, str]]:
    """The layers whose parameters are used by this one call only, and what became of all other parameters."""
    once: dict[str, CapturedLayer] = {}
    reasons: dict[str, str] = {}
    for layer in run.layers:
        own = [name for name in (layer.weight, layer.bias) if name]
        several = [name for name in own if run.uses[name] > 1]
        if several:
            reasons |= dict.fromkeys(own, f"{several[0]} is used {run.uses[several[0]]} times")
        elif not layer.intact:
            reasons |= dict.fromkeys(own, "the layer's input is changed in place afterwards")
        else:
            once[layer.name] = layer
    known = {name for layer in once.values() for name in (layer.weight, layer.bias) if name}
    for name in names:
        if name not in known and name not in reasons:
            reasons[name] = "not used as the weight or bias of a known layer" if run.uses.get(name) else "not used"
    return once, reasons


def _refused(once: dict[str, CapturedLayer], reasons: dict[str, str], why: str) -> ProblemFacts:
    return ProblemFacts({name: _described(layer, why) for name, layer in once.items()}, reasons)


def _described(layer: CapturedLayer, reason: str) -> LayerFacts:
    weight, kind = layer.roles.weight, layer.kind
    groups = kind.groups(layer.roles) if isinstance(kind, MatrixKind) else 1
    shape = () if weight is None else tuple(weight.shape)
    none = Arrangement()
    return LayerFacts(
        layer.name, kind, layer.weight, layer.bias, shape, groups, 1, none, none, False, False, False, reason
    )


class _Proof:
    """All proofs of one problem share two captures, one plain gradient with its graph, and the loss's own gradients."""

    def __init__(
        self, probe: Problem, batch: Any, whole: Capture, part: Capture, examples: int, fewer: int
    ) -> None:
        self.probe, self.whole, self.part = probe, whole, part
        self.examples, self.fewer = examples, fewer
        self.same_layers = [layer.name for layer in whole.layers] == [layer.name for layer in part.layers]
        self.index = {id(layer): i for i, layer in enumerate(whole.layers)}
        self.leaves = {name: t.clone().requires_grad_() for name, t in every_parameter(probe).items()}
        self.cotangent = self._draw("cotangent", whole.terms.f) if isinstance(whole.terms, OutputLoss) else None
        with torch.inference_mode(False), torch.enable_grad():
            self.first = self._plain(batch, through_loss=True, create_graph=True)
            self.plain = self._plain(batch, through_loss=False, create_graph=False)
        self.pulled = whole.gradients(self.cotangent)
        self.slopes = whole.gradients(create_graph=True)
        self.part_slopes = part.gradients(create_graph=True) if self.same_layers else []
        # What is smaller than rounding of these is zero.
        sizes = [whole.output()[0], *self.plain.values(), *self.first.values(), *self.slopes]
        self.scale = max(float(t.detach().abs().max()) for t in sizes if t.numel())

    def facts(self, layer: CapturedLayer) -> LayerFacts:
        none = _described(layer, "")
        if not self.same_layers:
            return replace(none, reason="which layers run depends on the number of examples")
        i = self.index[id(layer)]
        fewer = self.part.layers[i]
        inputs = Arrangement.of(layer.roles.x, fewer.roles.x, self.examples, self.fewer)
        outputs = Arrangement.of(layer.z, fewer.z, self.examples, self.fewer)
        if inputs is None or outputs is None:
            return replace(none, reason="its examples cannot be told apart")
        direction = self._draw(f"{layer.name} direction", layer.z)
        try:
            bent, bent_fewer = self._curved(i, direction, outputs)
        except RuntimeError as error:
            return replace(none, reason=f"no second derivative behind it ({error})")
        alone = (
            (inputs.first(layer.roles.x), inputs.first(fewer.roles.x)),
            (outputs.first(layer.z), outputs.first(fewer.z)),
            (outputs.first(self.slopes[i]), outputs.first(self.part_slopes[i])),
            (outputs.first(bent), outputs.first(bent_fewer)),
        )
        if not all(self._same(a[: self.fewer], b) for a, b in alone):
            return replace(none, reason="examples of a batch influence each other")
        if not self._gradient_is_ours(i, layer):
            return replace(none, reason="its gradient is not that of this call alone")
        if not self._product_is_ours(i, layer):
            return replace(none, reason="its block of the Hessian is not that of this call alone")
        positions, apart = self._positions(i, layer, outputs)
        return replace(
            none,
            positions=positions,
            input_examples=inputs,
            output_examples=outputs,
            exact=True,
            gauss_newton=self._factors_suffice(i, layer, direction, bent),
            positions_apart=apart,
        )

    def _curved(self, i: int, direction: Tensor, outputs: Arrangement) -> tuple[Tensor, Tensor]:
        """M u for all examples, and for the fewer ones alone."""
        fewer = outputs.back(outputs.first(direction)[: self.fewer])
        return (
            second_derivative_product(self.slopes[i], self.whole.layers[i].z, direction),
            second_derivative_product(self.part_slopes[i], self.part.layers[i].z, fewer),
        )

    def _plain(self, batch: Any, through_loss: bool, create_graph: bool) -> dict[str, Tensor]:
        """Gradients by plain backward: of the loss, or along the fixed cotangent of the outputs."""
        terms = self.probe.evaluate(batch, self.leaves)
        output, cotangent = (terms.f, self.cotangent) if isinstance(terms, OutputLoss) else (terms.total, None)
        if isinstance(terms, OutputLoss) and through_loss:
            cotangent = terms.differentiable_output_gradient()
        if not output.requires_grad:
            return {name: torch.zeros_like(t) for name, t in self.leaves.items()}
        found = torch.autograd.grad(
            output, list(self.leaves.values()), cotangent, create_graph=create_graph, materialize_grads=True
        )
        return dict(zip(self.leaves, found, strict=True))

    def _gradient_is_ours(self, i: int, layer: CapturedLayer) -> bool:
        ours = parameter_gradients(layer.roles, self.pulled[i].detach())
        return all(
            self._same(own, self.plain[name])
            for own, name in zip(ours, (layer.weight, layer.bias), strict=True)
            if name and own is not None
        )

    def _product_is_ours(self, i: int, layer: CapturedLayer) -> bool:
        """Aᵀ M A v against double backward restricted to the layer's own parameters, A the map from them to z."""
        names = [name for name in (layer.weight, layer.bias) if name]
        along = {name: self._draw(f"{name} product", self.leaves[name]) for name in names}
        change = output_change(
            layer.roles, *(along.get(name or "") for name in (layer.weight, layer.bias))
        ).detach()
        bent = second_derivative_product(self.slopes[i], layer.z, change.reshape(layer.z.shape))
        weight, bias = parameter_gradients(layer.roles, bent.detach())
        ours = [t for t, name in ((weight, layer.weight), (bias, layer.bias)) if name and t is not None]
        sources = [self.first[name] for name in names]
        live = [(s, along[name]) for s, name in zip(sources, names, strict=True) if s.requires_grad]
        truth = [torch.zeros_like(t) for t in ours]
        if live:
            truth = list(
                torch.autograd.grad(
                    [s for s, _ in live],
                    [self.leaves[name] for name in names],
                    [v for _, v in live],
                    retain_graph=True,
                    materialize_grads=True,
                )
            )
        flat, theirs = (torch.cat([t.reshape(-1) for t in part]) for part in (ours, truth))
        return self._same(flat, theirs)

    def _factors_suffice(self, i: int, layer: CapturedLayer, direction: Tensor, bent: Tensor) -> bool:
        """Whether M u is Jᵀ (∂²ℓ/∂f²) J u."""
        terms = self.whole.terms
        if not isinstance(terms, OutputLoss) or not terms.columns() or not terms.f.requires_grad:
            return False
        u = torch.zeros_like(terms.f, requires_grad=True)
        (pulled,) = torch.autograd.grad(
            terms.f, layer.z, u, create_graph=True, retain_graph=True, materialize_grads=True
        )
        if not pulled.requires_grad:
            return self._same(torch.zeros_like(bent), bent)
        (image,) = torch.autograd.grad(pulled, u, direction, retain_graph=True)
        (ours,) = torch.autograd.grad(
            terms.f, layer.z, terms.curvature(image), retain_graph=True, materialize_grads=True
        )
        return self._same(ours, bent)

    def _positions(self, i: int, layer: CapturedLayer, outputs: Arrangement) -> tuple[int, bool]:
        """How many positions an example has, and whether moving some leaves the gradients of the others alone."""
        kind = layer.kind
        if not isinstance(kind, MatrixKind):
            return 1, False
        spread = _units(kind, outputs, layer.z)
        positions = spread.shape[1]
        if positions == 1:
            return 1, False
        chosen = torch.rand(spread.shape[:2], generator=Rng(0).child("layers", "positions").torch()) < 0.5
        chosen = chosen.to(spread.device)[:, :, None]
        direction = _raw(kind, outputs, self._draw("positions", spread) * chosen, layer.z)
        bent = _units(kind, outputs, second_derivative_product(self.slopes[i], layer.z, direction))
        still = torch.where(chosen, torch.zeros_like(bent), bent)
        return positions, self._same(bent + still, bent)

    def _same(self, a: Tensor, b: Tensor) -> bool:
        a, b = a.detach(), b.detach()
        if a.shape != b.shape:
            return False
        if not a.is_floating_point():
            return bool(torch.equal(a, b))
        size = max(float(a.abs().max()), float(b.abs().max())) if a.numel() else 0.0
        tolerance = TOLERANCE.get(a.dtype, 1e-3)
        gap = float((a - b).abs().max()) if a.numel() else 0.0
        return gap <= tolerance * size or gap <= ROUNDING.get(a.dtype, 1e-5) * self.scale

    def _draw(self, name: str, like: Tensor) -> Tensor:
        noise = torch.randn(like.shape, generator=Rng(0).child("layers", name).torch(), dtype=torch.float64)
        return noise.to(like.device, like.dtype)


def second_derivative_product(slope: Tensor, z: Tensor, direction: Tensor) -> Tensor:
    """∂/∂z <slope, direction>: M u by one double-backward pass (zero where nothing depends on z)."""
    if not slope.requires_grad:
        return torch.zeros_like(z)
    (found,) = torch.autograd.grad(slope, z, direction, retain_graph=True, materialize_grads=True)
    return found


def _units(kind: MatrixKind, outputs: Arrangement, z: Tensor) -> Tensor:
    """`(examples, positions, m)`, what is folded into the batch counting as positions."""
    spread = kind.spread(z.movedim(outputs.axis, 0))
    return spread.reshape(spread.shape[0] // outputs.fold, -1, spread.shape[-1])


def _raw(kind: MatrixKind, outputs: Arrangement, units: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_units`."""
    moved = like.movedim(outputs.axis, 0)
    spread = units.reshape(moved.shape[0], -1, units.shape[-1])
    return kind.gather(spread, moved).movedim(0, outputs.axis)
