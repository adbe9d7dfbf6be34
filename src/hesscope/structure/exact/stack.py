"""Linear layers seen once per example: there the Hessian is Σ_n M_n ⊗ x_n x_nᵀ, and structure pays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...curvature import Problem
from ...curvature.engines.backward import noise_like
from ...curvature.losses.base import OutputLoss
from ...errors import refuse
from ...layers import Capture, CapturedLayer, LayerFacts, capture, facts_of
from ...layers.capturing import every_parameter, layer_name
from ...layers.kinds.linear import Linear
from ...layers.shared_captures import captured
from ...rng import Rng


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer of which weight, bias or both are selected; the inputs of a neuron are then [x], [1] or [x, 1]."""

    name: str
    weight: str | None
    bias: str | None
    inputs: int
    outputs: int

    @property
    def width(self) -> int:
        """Selected parameters per neuron."""
        return (self.inputs if self.weight else 0) + (1 if self.bias else 0)

    def augment(self, x: Tensor) -> Tensor:
        """The inputs that multiply a neuron's selected parameters: `(N, inputs)` to `(N, width)`."""
        parts = ([x] if self.weight else []) + ([x.new_ones(len(x), 1)] if self.bias else [])
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def augment_derivative(self, r: Tensor) -> Tensor:
        """The derivative of `augment`: the constant has none."""
        parts = ([r] if self.weight else []) + ([torch.zeros_like(r[..., :1])] if self.bias else [])
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


@dataclass
class Watched:
    """One batch with the outputs z of each layer as variables."""

    terms: OutputLoss
    outputs: list[Tensor]
    inputs: list[Tensor]
    head: tuple[Tensor, Tensor] | None  # inputs and weight of a layer that is not watched and feeds the loss
    kept: Tensor | None  # the examples that the loss counts, where the last layer shows that it drops some


@dataclass(frozen=True)
class Structure:
    """The structured layers in the order they run, whether the last one is the output layer, and everything else."""

    problem: Problem
    layers: tuple[LinearLayer, ...]
    has_output: bool
    others: tuple[str, ...] = field(default=())
    head: str | None = None  # the layer that feeds the loss, where it is not one of the layers

    @staticmethod
    def of(problem: Problem) -> Structure:
        """The linear layers that are proven to run once per example; all other selected tensors are `others`."""
        none = Structure(problem, (), False, problem.space.names)
        if not problem.has_outputs or problem.distributed:
            return none
        linear = [layer for layer in facts_of(problem).exact if type(layer.kind) is Linear]
        if not linear:
            return none
        run = capture(problem.probe, next(iter(problem.probe.batches)), [layer.name for layer in linear])
        ends = _reaches_the_loss(run, linear[-1])
        once = [layer for layer in linear if _once_per_example(run, layer)]
        found = [
            layer for layer in (linear[-1:] if ends and linear[-1] not in once else once) if _selected(problem, layer)
        ]
        if not found:
            return none
        has_output = ends and found[-1] is linear[-1]
        layers = tuple(_linear_layer(problem, layer) for layer in found)
        taken = {name for layer in layers for name in (layer.weight, layer.bias)}
        others = tuple(name for name in problem.space.names if name not in taken)
        head = linear[-1].name if ends and not has_output and linear[-1] in once and linear[-1].weight else None
        return Structure(problem, layers, has_output, others, head)

    def watch(self, batch: Any) -> Watched:
        """Run one batch; parameters are constants."""
        names = [layer.name for layer in self.layers]
        run = captured(self.problem, batch, {*names, *([self.head] if self.head else [])})
        assert isinstance(run.terms, OutputLoss)
        seen = [_only_linear(run, name) for name in names]
        same, kept = _selected_rows(run.terms.f, seen[-1].z)
        if self.has_output and not same:
            refuse(
                "an output layer's outputs must reach the loss as they are",
                "outputs that are changed on the way in some batches",
                "Run such batches through another loss, or select the other layers.",
            )
        head = None if self.head is None else _only_linear(run, self.head)
        fed = head is not None and head.roles.x.requires_grad and torch.equal(head.z.detach(), run.terms.f.detach())
        weight = None if head is None else head.roles.weight
        return Watched(
            run.terms,
            [layer.z for layer in seen],
            [layer.roles.x for layer in seen],
            (head.roles.x, weight.detach()) if fed and head is not None and weight is not None else None,
            kept if same else None,
        )

    def positions(self) -> Tensor:
        """Flat positions in streaming order: the other tensors, then each layer neuron by neuron."""
        places = dict(self.problem.space.slices())
        parts = [torch.arange(places[name].start, places[name].stop, device="cpu") for name in self.others]
        for layer in self.layers:
            columns = []
            if layer.weight:
                place = places[layer.weight]
                columns.append(torch.arange(place.start, place.stop, device="cpu").view(layer.outputs, layer.inputs))
            if layer.bias:
                place = places[layer.bias]
                columns.append(torch.arange(place.start, place.stop, device="cpu").view(layer.outputs, 1))
            parts.append(torch.cat(columns, 1).reshape(-1))
        return torch.cat(parts)


def output_layer(problem: Problem, name: str | None) -> LinearLayer:
    """A linear layer in its role before the loss, by the name of its module or weight; by default the last that runs."""
    run = capture(problem, next(iter(problem.batches)))
    linear = [layer for layer in run.layers if type(layer.kind) is Linear and layer.weight]
    known = ", ".join(dict.fromkeys(layer.name for layer in linear)) or "none"
    if not (name is None or isinstance(name, str)):
        refuse("a layer must be given by name", f"{name!r}", f"Linear layers here: {known}.")
    if name is None:
        if not linear:
            refuse(
                "output blocks need a linear output layer",
                f"{type(problem.model).__name__} without one",
                "Use hs.block_norms.",
            )
        chosen = linear[-1]
    else:
        wanted = {name, layer_name(_shared_name(problem, f"{name}.weight"))}
        named = [layer for layer in linear if layer.name in wanted]
        if not named:
            refuse("a layer must be a linear layer that runs", f"{name!r}", f"Linear layers here: {known}.")
        chosen = named[-1]
    assert chosen.roles.weight is not None
    outputs, inputs = chosen.roles.weight.shape
    return LinearLayer(chosen.name, chosen.weight, None, inputs, outputs)


def _shared_name(problem: Problem, parameter: str) -> str:
    """The name under which a parameter is known, where it has several (tied weights)."""
    everywhere = dict(problem.model.named_parameters(remove_duplicate=False))
    own = everywhere.get(parameter)
    known = every_parameter(problem)
    return next((name for name, p in everywhere.items() if p is own and name in known), parameter)


def _only_linear(run: Capture, name: str) -> CapturedLayer:
    found = [layer for layer in run.of(name) if type(layer.kind) is Linear]
    if len(found) != 1:
        refuse(
            "a structured layer must run once in every batch",
            f"{name!r}, {len(found)} times in one of them",
            "Use products: hs.Hessian(problem).",
        )
    return found[0]


def _selected(problem: Problem, layer: LayerFacts) -> bool:
    return any(name in problem.parameters for name in layer.parameters)


def _once_per_example(run: Capture, layer: LayerFacts) -> bool:
    return layer.positions == 1 and _only_linear(run, layer.name).roles.x.ndim == 2


def _linear_layer(problem: Problem, layer: LayerFacts) -> LinearLayer:
    weight, bias = (name if name in problem.parameters else None for name in (layer.weight, layer.bias))
    return LinearLayer(layer.name, weight, bias, layer.inputs, layer.outputs)


def _reaches_the_loss(run: Capture, last: LayerFacts) -> bool:
    """Whether the outputs of a layer are what the loss sees, in value and in derivative."""
    assert isinstance(run.terms, OutputLoss)
    f, z = run.terms.f, _only_linear(run, last.name).z
    same, kept = _selected_rows(f, z)
    if not same:
        return False
    cotangent = noise_like(Rng(0).child("structure", "output"), f)
    (pulled,) = torch.autograd.grad(f, z, cotangent, retain_graph=True)
    rows = pulled.reshape(-1, pulled.shape[-1])
    return torch.equal(rows if kept is None else rows[kept], cotangent)


def _selected_rows(f: Tensor, z: Tensor) -> tuple[bool, Tensor | None]:
    """Whether the rows of f are rows of z as they are, and which (None for all, in order).

    Which rows were kept (labels can be ignored) is read off the derivative of a numbering of the rows.
    """
    if f.shape[-1] != z.shape[-1] or not f.requires_grad:
        return False, None
    flat = z.detach().reshape(-1, z.shape[-1])
    if len(flat) == len(f) and torch.equal(flat, f.detach()):
        return True, None
    numbering = torch.zeros_like(f)
    numbering[:, 0] = torch.arange(1, len(f) + 1, device="cpu")
    (pulled,) = torch.autograd.grad(f, z, numbering, retain_graph=True, materialize_grads=True)
    number = pulled.reshape(-1, z.shape[-1])[:, 0].round().long()
    kept = torch.nonzero(number).squeeze(1)
    kept = kept[number[kept].argsort()]
    return len(kept) == len(f) and torch.equal(flat[kept], f.detach()), kept
