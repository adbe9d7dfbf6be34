"""The proofs: gradients and second derivatives from what a layer was given, against plain double backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ..curvature.engines.backward import linear_at, noise_like
from ..curvature.losses.base import OutputLoss
from ..curvature.problem import Problem, ScalarLoss
from ..rng import Rng
from .arrangement import Arrangement
from .capturing import Capture, CapturedLayer, every_parameter
from .kinds import MatrixKind
from .kinds.base import parameter_gradients
from .layer import OTHER_TYPE, LayerFacts, described

# One policy: relative to the larger side, in float64 (where a model cannot run in it, its own rounding decides).
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3}
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5}


class LayerProof:
    """All proofs of one problem share two captures, one plain gradient with its graph, and the loss's own gradients."""

    def __init__(self, probe: Problem, batch: Any, whole: Capture, part: Capture, examples: int) -> None:
        self.probe, self.whole, self.part = probe, whole, part
        self.examples, self.fewer = examples, max(1, examples // 2)
        self.same_layers = [layer.name for layer in whole.layers] == [layer.name for layer in part.layers]
        self.index = {id(layer): i for i, layer in enumerate(whole.layers)}
        self.leaves = {name: t.requires_grad_() for name, t in every_parameter(probe).items()}
        self.cotangent = self._draw("cotangent", whole.terms.f) if isinstance(whole.terms, OutputLoss) else None
        with torch.inference_mode(False), torch.enable_grad():
            self.first, self.plain = self._plain(probe.evaluate(batch, self.leaves))
        self.pulled = whole.gradients(self.cotangent)
        self.slopes = whole.gradients(create_graph=True)
        self.part_slopes = part.gradients(create_graph=True) if self.same_layers else []
        # A loss may not curve on these examples (Huber far off, a perfect fit), or curve in some directions only. What
        # is concluded for other examples must hold for a generic loss of the outputs: <a, f> + |f|²/2.
        self.generic = self._generic(whole)
        self.part_generic = self._generic(part) if self.same_layers else []
        # What is smaller than rounding of these is zero.
        sizes = [whole.output()[0], *self.plain.values(), *self.first.values(), *self.slopes]
        largest = list(map(_largest, sizes))
        self.scale, self.finite = max(largest), all(isfinite(size) for size in largest)

    def facts(self, layer: CapturedLayer) -> LayerFacts:
        """What holds of one layer, or why it may not be used."""
        none = described(layer)
        if not self.finite:
            return replace(none, reason="its values and derivatives are not finite on some examples")
        if not self.same_layers:
            return replace(none, reason="which layers run depends on the number of examples")
        if any(t is not None and t.dtype != layer.z.dtype for t in (layer.roles.weight, layer.roles.bias)):
            return replace(none, reason=OTHER_TYPE)
        i = self.index[id(layer)]
        fewer = self.part.layers[i]
        inputs = Arrangement.of(layer.roles.x, fewer.roles.x, self.examples, self.fewer)
        outputs = Arrangement.of(layer.z, fewer.z, self.examples, self.fewer)
        if inputs is None or outputs is None:
            return replace(none, reason="its examples cannot be told apart")
        direction = self._draw(f"{layer.name} direction", layer.z)
        pairs = [(layer.z, fewer.z), (self.slopes[i], self.part_slopes[i]), (self.generic[i], self.part_generic[i])]
        pairs += [self._curved(own, part, i, direction, outputs) for own, part in pairs[1:]]
        alone = [(inputs.first(layer.roles.x), inputs.first(fewer.roles.x))]
        alone += [(outputs.first(a), outputs.first(b)) for a, b in pairs]
        if not all(self._same(every_second(a), b) for a, b in alone):
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
            gauss_newton=self._factors_suffice(layer, direction, pairs[-1][0]),
            positions_apart=apart,
            terms_apart=apart and self._terms_apart(layer, outputs),
        )

    def _generic(self, run: Capture) -> list[Tensor]:
        """The gradients of the generic loss, or those of a loss that is one number."""
        if not isinstance(run.terms, OutputLoss):
            return run.gradients(create_graph=True)
        return run.gradients(self._draw("generic", run.terms.f[:1]) + run.terms.f, create_graph=True)

    def _curved(
        self, slope: Tensor, part_slope: Tensor, i: int, direction: Tensor, outputs: Arrangement
    ) -> tuple[Tensor, Tensor]:
        """M u for all examples, and for the fewer ones alone."""
        fewer = outputs.back(every_second(outputs.first(direction)))
        return (
            second_derivative_product(slope, self.whole.layers[i].z, direction),
            second_derivative_product(part_slope, self.part.layers[i].z, fewer),
        )

    def _plain(self, terms: OutputLoss | ScalarLoss) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Gradients by plain backward: of the loss, with their graph, and along the fixed cotangent of the outputs."""
        if isinstance(terms, OutputLoss):
            output, slope = terms.f, terms.differentiable_output_gradient()
        else:
            output, slope = terms.total, None
        if not output.requires_grad:
            return ({name: torch.zeros_like(t) for name, t in self.leaves.items()},) * 2
        leaves = list(self.leaves.values())
        first = torch.autograd.grad(output, leaves, slope, create_graph=True, materialize_grads=True)
        plain = torch.autograd.grad(output, leaves, self.cotangent, retain_graph=True, materialize_grads=True)
        return dict(zip(self.leaves, first, strict=True)), dict(zip(self.leaves, plain, strict=True))

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
        change = layer.kind.output_change(
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
        return self._same_parts(ours, truth)

    def _factors_suffice(self, layer: CapturedLayer, direction: Tensor, bent: Tensor) -> bool:
        """Whether outputs do not curve: then M u = Jᵀ J u for the generic loss, and Jᵀ (∂²ℓ/∂f²) J u for any."""
        terms = self.whole.terms
        if not isinstance(terms, OutputLoss) or not terms.columns() or not terms.f.requires_grad:
            return False
        u, pulled = pulled_back(terms.f, layer.z)
        if not pulled.requires_grad:
            return self._same(torch.zeros_like(bent), bent)
        (image,) = torch.autograd.grad(pulled, u, direction, retain_graph=True)
        (ours,) = torch.autograd.grad(terms.f, layer.z, image, retain_graph=True, materialize_grads=True)
        return self._same(ours, bent)

    def _positions(self, i: int, layer: CapturedLayer, outputs: Arrangement) -> tuple[int, bool]:
        """How many positions an example has, and whether moving some leaves the gradients of the others alone."""
        if not isinstance(layer.kind, MatrixKind):
            return 1, False
        known = replace(described(layer), output_examples=outputs)
        spread = known.units(layer.z)
        positions = spread.shape[1]
        if positions == 1:
            return 1, False
        chosen = (
            torch.rand(
                spread.shape[:2],
                generator=Rng(0).child("layers", "positions").torch(),
                dtype=torch.float32,
                device="cpu",
            )
            < 0.5
        )
        chosen = chosen.to(spread.device)[:, :, None]
        direction = known.raw(self._draw("positions", spread) * chosen, layer.z)
        for slope in (self.slopes[i], self.generic[i]):
            bent = known.units(second_derivative_product(slope, layer.z, direction))
            still = torch.where(chosen, torch.zeros_like(bent), bent)
            # A loss that is one number has no generic one; where it does not curve here it shows nothing.
            if not self._same(bent + still, bent) or not (isinstance(self.whole.terms, OutputLoss) or bent.any()):
                return positions, False
        return positions, True

    def _terms_apart(self, layer: CapturedLayer, outputs: Arrangement) -> bool:
        """Whether each term of the loss depends on one position: its image under noise times the number of the position
        is then that number times its image under the noise."""
        terms = self.whole.terms
        if not isinstance(terms, OutputLoss) or not terms.f.requires_grad:
            return True
        u, pulled = pulled_back(terms.f, layer.z)
        if not pulled.requires_grad:
            return True
        known = replace(described(layer), output_examples=outputs)
        noise = self._draw("terms", known.units(layer.z))
        number = torch.arange(1, noise.shape[1] + 1, device=noise.device, dtype=noise.dtype)[:, None]
        plain, numbered = (
            second_derivative_product(pulled, u, known.raw(tangent, layer.z)) for tangent in (noise, noise * number)
        )
        norm = plain.square().sum(-1, keepdim=True)
        found = ((numbered * plain).sum(-1, keepdim=True) / norm.clamp_min(1e-300)).round()
        return bool(((numbered - found * plain).square().sum(-1, keepdim=True) <= 1e-4 * norm).all())

    def _same(self, a: Tensor, b: Tensor) -> bool:
        return a.shape == b.shape and (self._same_parts([a], [b]) if a.is_floating_point() else bool(torch.equal(a, b)))

    def _same_parts(self, ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
        """Whether all parts together agree, measured by their largest entry."""
        dtype = ours[0].dtype
        size = max(map(_largest, (*ours, *theirs)))
        allowed = max(TOLERANCE.get(dtype, 1e-3) * size, ROUNDING.get(dtype, 1e-5) * self.scale)
        return all(_largest(a.detach() - b.detach()) <= allowed for a, b in zip(ours, theirs, strict=True))

    def _draw(self, name: str, like: Tensor) -> Tensor:
        return noise_like(Rng(0).child("layers", name), like)


def _largest(t: Tensor) -> float:
    low, high = t.detach().aminmax() if t.numel() else (t.new_zeros(()), t.new_zeros(()))
    return max(-float(low), float(high))


def pulled_back(f: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """u and Jᵀ u as a function of it, for J = ∂f/∂z: the derivative of Jᵀ u along v is J v."""
    u = linear_at(f)
    (pulled,) = torch.autograd.grad(f, z, u, create_graph=True, retain_graph=True, materialize_grads=True)
    return u, pulled


def second_derivative_product(slope: Tensor, z: Tensor, direction: Tensor) -> Tensor:
    """∂/∂z <slope, direction>: M u by one double-backward pass (zero where nothing depends on z)."""
    if not slope.requires_grad:
        return torch.zeros_like(z)
    (found,) = torch.autograd.grad(slope, z, direction, retain_graph=True, materialize_grads=True)
    return found


def every_second(t: Tensor) -> Tensor:
    """Half of the examples, scattered over a batch, so that what reaches forwards or backwards over it shows."""
    return t[1::2] if len(t) > 1 else t
