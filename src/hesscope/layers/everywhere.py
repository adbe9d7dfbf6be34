"""What was proven of layers on a few examples, looked for in all data: rare examples may see the others, run other layers, or
lie where an activation curves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from ..curvature.data import examples_in, halves
from ..curvature.engines.backward import linear_at, noise_like
from ..curvature.engines.memory import is_out_of_memory
from ..curvature.losses.base import OutputLoss
from ..curvature.problem import Problem, ScalarLoss
from ..curvature.proofs.independence import parts_add_up
from ..errors import HesscopeError
from ..rng import Rng
from .capturing import Capture, capture, every_parameter
from .example_gradients import ExampleGradients
from .layer import OTHER_TYPE, LayerFacts
from .shared_captures import shared_terms

_DIGITS = {torch.float64: 1e-11, torch.float32: 1e-4}
_ROUNDING = 64.0  # units in the last place, of the curvature that the loss has
OTHERWISE = "on some of the data it is used otherwise than on the examples it was tried on"


def hold_everywhere(problem: Problem, found: Mapping[str, LayerFacts], alone: bool) -> dict[str, LayerFacts] | None:
    """The layers with what holds of them in every batch, of any process; None where examples see each other in one.

    Three passes over the data for the exact layers (two where a pass over the batches as they stand is shared, one where every
    batch is one example), and a product with second derivatives of the outputs for those behind which they are said not to curve.
    """
    exact = {name: layer for name, layer in found.items() if layer.exact}
    changed = _Changed(problem, exact)
    mixed = not (alone or parts_add_up(changed.look, problem.batches, shared_terms(problem)))
    for batch in problem.batches:
        if (examples_in(batch) or 0) < 2:  # no halves, which are looked at already
            changed.look(batch)
    if problem._anywhere(mixed):
        return None
    other = {name: changed.why.get(name, OTHERWISE) for name in exact if problem._anywhere(name in changed.why)}
    linear = {name: layer for name, layer in exact.items() if layer.gauss_newton and name not in other}
    bent = _bent_somewhere(problem, linear.values())
    bent = {name for name in linear if problem._anywhere(name in bent)}
    settled = {
        name: replace(layer, exact=False, gauss_newton=False, reason=other[name]) if name in other else layer
        for name, layer in found.items()
    }
    return {name: replace(layer, gauss_newton=False) if name in bent else layer for name, layer in settled.items()}


class _Changed:
    """Evaluates batches, and collects the layers that are not called as they were when they were tried, and why.

    The proofs, in float64, see neither autocast inside the model nor that its parameters have several types.
    """

    def __init__(self, problem: Problem, layers: Mapping[str, LayerFacts]) -> None:
        self.problem, self.layers = problem, layers
        types = {t.dtype for t in every_parameter(problem).values() if t.is_floating_point()}
        self._type = types.pop() if len(types) == 1 else None
        self.why: dict[str, str] = {}

    def look(self, batch: Any) -> OutputLoss | ScalarLoss:
        run = capture(self.problem, batch, self.layers)
        for name, layer in self.layers.items():
            if not _called_once(run, layer):
                self.why.setdefault(name, OTHERWISE)
            elif run.of(name)[0].z.dtype != self._type:
                self.why[name] = OTHER_TYPE
        return run.terms


def _called_once(run: Capture, layer: LayerFacts) -> bool:
    calls = run.of(layer.name)
    if len(calls) != 1 or any(run.uses[name] != 1 for name in layer.parameters):
        return False
    return calls[0].intact and (calls[0].kind, calls[0].weight, calls[0].bias) == (layer.kind, layer.weight, layer.bias)


def _bent_somewhere(problem: Problem, layers: Collection[LayerFacts]) -> set[str]:
    """The layers in whose outputs z the network's outputs curve on some example.

    The derivative of <∂f/∂z, u>, for random u and a random combination f of the outputs, is zero where they do not,
    for all layers at once; elsewhere an example that curves has no reason to hide.
    """
    gradients = ExampleGradients(problem, layers)
    bent: set[str] = set()
    for batch in problem.batches if layers else ():
        bent |= _bent_in_parts(gradients, batch)
    return bent


def _bent_in_parts(gradients: ExampleGradients, batch: Any) -> set[str]:
    """Halves of the batch, where graphs of all of it do not fit; what cannot be differentiated twice counts as bent."""
    try:
        return _bent_in(gradients.capture(batch))
    except HesscopeError:
        raise
    except RuntimeError as error:
        if not is_out_of_memory(error):
            return set(gradients.layers)
        parts = halves(batch)
        if parts is None:
            raise
    return set[str]().union(*(_bent_in_parts(gradients, part) for part in parts))


def _bent_in(run: Capture) -> set[str]:
    terms = run.terms
    if not isinstance(terms, OutputLoss) or not len(terms.f) or not terms.f.requires_grad:
        return set()

    rng = Rng(0).child("everywhere")
    zs = [layer.z for layer in run.layers]
    along = [noise_like(rng.child(f"along {layer.name}"), layer.z) for layer in run.layers]
    slopes = run.gradients(noise_like(rng.child("outputs"), terms.f), create_graph=True)
    live = [(slope, u) for slope, u in zip(slopes, along, strict=True) if slope.requires_grad]
    if not live:
        return set()
    curved = torch.autograd.grad(
        [slope for slope, _ in live], zs, [u for _, u in live], retain_graph=True, materialize_grads=True
    )
    moving = {
        layer.name: (layer.z, u, c) for layer, u, c in zip(run.layers, along, curved, strict=True) if bool(c.any())
    }
    if not moving:
        return set()
    free = linear_at(terms.f)
    pulled = dict(zip([layer.name for layer in run.layers], run.gradients(free, create_graph=True), strict=True))
    own = dict(zip([layer.name for layer in run.layers], _in_the_loss(run, terms, zs, along), strict=True))
    found = set()
    for name, (z, u, c) in moving.items():
        # Rounding leaves something behind normalisations: it is compared with the curvature of |f|²/2.
        (image,) = torch.autograd.grad(pulled[name], free, u, retain_graph=True)
        (plain,) = torch.autograd.grad(terms.f, z, image, retain_graph=True, materialize_grads=True)
        if not float(c.abs().max()) <= _DIGITS.get(z.dtype, 1e-2) * float(plain.abs().max()):
            found.add(name)
            continue
        # A loss that hardly curves where it still has a slope makes much of little: what is left out must be rounding.
        curved_loss = terms.curvature(image.detach()).to(terms.f.dtype)
        (plain,) = torch.autograd.grad(terms.f, z, curved_loss, retain_graph=True, materialize_grads=True)
        rounding = _ROUNDING * float(torch.finfo(z.dtype).eps)
        if not float(own[name].abs().max()) <= rounding * float(plain.abs().max()):
            found.add(name)
    return found


def _in_the_loss(
    run: Capture, terms: OutputLoss, zs: list[torch.Tensor], along: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """What the outputs' curvature, times the slopes of the loss, makes of these directions."""
    slopes = run.gradients(terms.output_gradient().to(terms.f.dtype), create_graph=True)
    live = [(slope, u) for slope, u in zip(slopes, along, strict=True) if slope.requires_grad]
    return torch.autograd.grad(
        [slope for slope, _ in live], zs, [u for _, u in live], retain_graph=True, materialize_grads=True
    )
