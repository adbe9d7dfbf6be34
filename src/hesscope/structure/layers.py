"""Linear layers seen once per example: there the Hessian is Σ_n M_n ⊗ x_n x_nᵀ, and structure pays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..curvature import Problem
from ..curvature.data import first_examples
from ..curvature.losses.base import OutputLoss
from ..errors import refuse

_PROBE = 16  # examples that show how a network is built


@dataclass(frozen=True)
class LinearLayer:
    """One `nn.Linear` of which weight, bias or both are selected; the inputs of a neuron are then [x], [1] or [x, 1]."""

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
    """One batch run with a shift ε added to the outputs of each layer: z = W x + ε."""

    rows: OutputLoss
    shifts: list[Tensor]
    inputs: list[Tensor]
    head: tuple[Tensor, Tensor] | None  # inputs and weight of a Linear that is not watched and feeds the loss
    ends: bool  # the outputs of the last layer are what the loss sees
    kept: Tensor | None  # the examples that the loss counts, where the last layer shows that it drops some


@dataclass(frozen=True)
class Structure:
    """The structured layers in the order they run, whether the last one is the output layer, and everything else."""

    problem: Problem
    layers: tuple[LinearLayer, ...]
    has_output: bool
    others: tuple[str, ...] = field(default=())
    head: str | None = None  # the last Linear, where it is not one of the layers

    @staticmethod
    def of(problem: Problem) -> Structure:
        """Find the linear layers that run once per example; all other selected tensors are `others`."""
        none = Structure(problem, (), False, problem.space.names)
        if not problem.has_outputs or problem.distributed:
            return none
        candidates = _candidates(problem)
        batch = first_examples(next(iter(problem.batches)), _PROBE)
        dims: dict[str, list[int]] = {}  # the dimensions of each call's input, in the order of the first calls

        def note(name: str) -> Any:
            return lambda module, args, output: dims.setdefault(name, []).append(args[0].ndim)

        linear = [name for name, module in problem.model.named_modules() if isinstance(module, nn.Linear)]
        with _hooked(problem.model, {name: note(name) for name in linear}), torch.no_grad():
            problem.evaluate(batch, problem.parameters)
        once = [name for name, calls in dims.items() if len(calls) == 1]
        found = [candidates[name] for name in once if name in candidates]
        if not found:
            return none
        output = Structure(problem, (found[-1],), False).watch(batch).ends
        if output and dims[found[-1].name][0] != 2:
            found = found[-1:]  # tokens are rows for the loss, but not for hidden layers
        else:
            found = [layer for layer in found if dims[layer.name][0] == 2]
        structure = Structure(problem, tuple(found), output and bool(found))
        if not found or not structure._fits(batch):
            return none
        taken = {name for layer in found for name in (layer.weight, layer.bias)}
        others = tuple(n for n in problem.space.names if n not in taken)
        head = once[-1] if not output and dims[once[-1]][0] == 2 and once[-1] != found[-1].name else None
        return Structure(problem, structure.layers, structure.has_output, others, head)

    def watch(self, batch: Any) -> Watched:
        """Run one batch with shifts that require gradients; parameters are constants."""
        shifts: dict[str, Tensor] = {}
        inputs: dict[str, Tensor] = {}
        outputs: dict[str, Tensor] = {}

        def shift(name: str) -> Any:
            def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
                shifts[name] = torch.zeros_like(output, requires_grad=True)
                inputs[name] = args[0]
                outputs[name] = output + shifts[name]
                return outputs[name]

            return hook

        head: list[Tensor] = []
        hooks = {layer.name: shift(layer.name) for layer in self.layers}
        if self.head is not None:
            hooks[self.head] = lambda module, args, output: head.extend((args[0], module.weight.detach(), output))
        with _hooked(self.problem.model, hooks), torch.enable_grad():
            rows = self.problem.evaluate(batch, self.problem.parameters)
        assert isinstance(rows, OutputLoss)
        names = [layer.name for layer in self.layers]
        same, kept = _selected_rows(rows.f, outputs[names[-1]], shifts[names[-1]])
        if self.has_output and not same:
            refuse(
                "an output layer's outputs must reach the loss as they are",
                "outputs that are changed on the way in some batches",
                "Run such batches through another loss, or select the other layers.",
            )
        fed = bool(head) and head[0].requires_grad and torch.equal(head[2].detach(), rows.f.detach())
        return Watched(
            rows,
            [shifts[n] for n in names],
            [inputs[n] for n in names],
            (head[0], head[1]) if fed else None,
            same,
            kept if same else None,
        )

    def positions(self) -> Tensor:
        """Flat positions in streaming order: the other tensors, then each layer neuron by neuron."""
        places = dict(self.problem.space.slices())
        parts = [torch.arange(places[name].start, places[name].stop) for name in self.others]
        for layer in self.layers:
            columns = []
            if layer.weight:
                place = places[layer.weight]
                columns.append(torch.arange(place.start, place.stop).view(layer.outputs, layer.inputs))
            if layer.bias:
                place = places[layer.bias]
                columns.append(torch.arange(place.start, place.stop).view(layer.outputs, 1))
            parts.append(torch.cat(columns, 1).reshape(-1))
        return torch.cat(parts)

    def _fits(self, batch: Any) -> bool:
        """Whether examples do not see each other and the layers' weights act nowhere else, tried on a few examples."""
        seen = self.watch(batch)
        if not seen.rows.f.requires_grad or any(len(shift) != len(seen.shifts[0]) for shift in seen.shifts):
            return False
        slopes = torch.autograd.grad(
            seen.rows.f, seen.shifts, seen.rows.differentiable_output_gradient(), create_graph=True
        )
        return self._gradient_is_outer(batch, seen, slopes) and _examples_are_apart(seen, slopes)

    def _gradient_is_outer(self, batch: Any, seen: Watched, slopes: tuple[Tensor, ...]) -> bool:
        """∂ℓ/∂W = Σ_n δ_n x̃_nᵀ: fails where a weight is also used outside its module."""
        problem = self.problem
        leaves = problem.leaves()
        gradient = dict(zip(leaves, problem.batch_gradient(batch, leaves, create_graph=False), strict=True))
        for layer, x, slope in zip(self.layers, seen.inputs, slopes, strict=True):
            delta = slope.detach().reshape(-1, layer.outputs)
            outer = delta.T @ x.detach().reshape(-1, layer.inputs)
            for name, mine in ((layer.weight, outer), (layer.bias, delta.sum(0))):
                theirs = gradient[name] if name else None
                if theirs is not None and float((theirs - mine).norm()) > 1e-3 * float(mine.norm()):
                    return False
        return True


def _examples_are_apart(seen: Watched, slopes: tuple[Tensor, ...]) -> bool:
    """Whether a change in a random half of the examples leaves the slopes of the others alone, in every layer."""
    generator = torch.Generator().manual_seed(0)
    for slope in slopes:
        if not slope.requires_grad:
            continue
        flat = slope.reshape(-1, slope.shape[-1])
        still = torch.rand(len(flat), generator=generator) < 0.5
        probe = torch.rand(flat.shape, generator=generator, dtype=torch.float64).to(slope)
        probe[still] = 0
        moved = torch.autograd.grad(flat, seen.shifts, probe, retain_graph=True, allow_unused=True)
        if any(m is not None and bool(m.reshape(-1, m.shape[-1])[still].any()) for m in moved):
            return False
    return True


def linear_layer(problem: Problem, name: str) -> LinearLayer:
    """The structured form of one layer; refuses a name that is not a Linear."""
    modules = dict(problem.model.named_modules())
    linear = ", ".join(n for n, m in modules.items() if isinstance(m, nn.Linear)) or "none"
    if name not in modules:
        refuse("a layer must be a module of the model", f"{name!r}", f"Linear layers here: {linear}.")
    if not isinstance(modules[name], nn.Linear):
        refuse("a layer must be an nn.Linear", f"{name!r}, a {type(modules[name]).__name__}", f"There are: {linear}.")
    module: Any = modules[name]
    return LinearLayer(name, f"{name}.weight", None, module.in_features, module.out_features)


def _candidates(problem: Problem) -> dict[str, LinearLayer]:
    """Linear modules whose parameters are selected and used by no other module."""
    uses = Counter(id(p) for _, p in problem.model.named_parameters(remove_duplicate=False))
    found = {}
    for path, module in problem.model.named_modules():
        if not isinstance(module, nn.Linear) or type(module).forward is not nn.Linear.forward:
            continue
        own = dict(module.named_parameters(recurse=False))
        if any(uses[id(p)] > 1 for p in own.values()):
            continue
        prefix = f"{path}." if path else ""
        weight, bias = (prefix + n if prefix + n in problem.space.names else None for n in ("weight", "bias"))
        if weight or bias:
            found[path] = LinearLayer(path, weight, bias, module.in_features, module.out_features)
    return found


def _selected_rows(f: Tensor, z: Tensor, shift: Tensor) -> tuple[bool, Tensor | None]:
    """Whether the rows of f are rows of z as they are, and which (None for all, in order).

    Which rows were kept (labels can be ignored) is read off the derivative of a numbering of the rows.
    """
    if f.shape[-1] != z.shape[-1] or not f.requires_grad:
        return False, None
    flat = z.detach().reshape(-1, z.shape[-1])
    if len(flat) == len(f) and torch.equal(flat, f.detach()):
        return True, None
    numbering = torch.zeros_like(f)
    numbering[:, 0] = torch.arange(1, len(f) + 1)
    (pulled,) = torch.autograd.grad(f, shift, numbering, retain_graph=True)
    number = pulled.reshape(-1, z.shape[-1])[:, 0].round().long()
    kept = torch.nonzero(number).squeeze(1)
    kept = kept[number[kept].argsort()]
    return len(kept) == len(f) and torch.equal(flat[kept], f.detach()), kept


@contextmanager
def _hooked(model: nn.Module, hooks: dict[str, Any]) -> Iterator[None]:
    modules = dict(model.named_modules())
    handles = [modules[name].register_forward_hook(hook) for name, hook in hooks.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
