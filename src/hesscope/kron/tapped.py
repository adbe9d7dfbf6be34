"""One forward pass that also shows what chosen layers were given, with their outputs as variables of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..curvature import Problem
from ..curvature.data import examples_in
from ..curvature.losses.base import OutputLoss
from ..curvature.problem import ScalarLoss
from ..errors import refuse
from .layers import Layer


@dataclass
class Seen:
    """A layer in one forward pass: its input as it came, and its output as the variable `z` of shape `(U, P, m)`."""

    layer: Layer
    inputs: Tensor
    z: Tensor
    flat: bool  # whether every position is a unit of its own

    def patches(self, examples: int | None) -> Tensor:
        """x as `(U, P, groups, n)`."""
        x = self.layer.patches(self.inputs, examples).detach()
        return x.flatten(0, 1).unsqueeze(1) if self.flat else x


@dataclass
class Tapped:
    """Loss terms of one batch as a function of the outputs of the seen layers."""

    terms: OutputLoss | ScalarLoss
    seen: list[Seen]
    examples: int | None

    def slopes(self, create_graph: bool = False) -> tuple[Tensor, ...]:
        """∂ℓ/∂z of every seen layer."""
        output, cotangent = self.terms.f if isinstance(self.terms, OutputLoss) else self.terms.total, None
        if isinstance(self.terms, OutputLoss):
            cotangent = self.terms.differentiable_output_gradient() if create_graph else self.terms.output_gradient()
        return self.pull(output, cotangent, create_graph)

    def pull(self, output: Tensor, cotangent: Tensor | None, create_graph: bool = False) -> tuple[Tensor, ...]:
        """(∂output/∂z)ᵀ cotangent of every seen layer."""
        zs = [seen.z for seen in self.seen]
        if not output.requires_grad:
            return tuple(torch.zeros_like(z) for z in zs)
        return torch.autograd.grad(
            output, zs, cotangent, retain_graph=True, create_graph=create_graph, materialize_grads=True
        )


def tap(
    problem: Problem,
    batch: Any,
    layers: Sequence[Layer],
    flat: Sequence[bool],
    shifts: Sequence[Tensor] | None = None,
    parameters: Mapping[str, Tensor] | None = None,
) -> Tapped:
    """Run model and loss on one batch; `shifts` are added to the layers' outputs, in the shape of their `z`."""
    examples = examples_in(batch)
    seen: dict[str, Seen] = {}
    with _hooks(layers, flat, shifts, examples, seen), torch.enable_grad():
        terms = problem.evaluate(batch, problem.parameters if parameters is None else parameters)
    for layer in layers:
        if layer.name not in seen:
            refuse(
                "the layer must be called in the forward pass",
                f"{layer.name!r}, which is not",
                "It may be unused, or its weight may be used without calling it (as nn.MultiheadAttention does).",
            )
    return Tapped(terms, [seen[layer.name] for layer in layers], examples)


@contextmanager
def _hooks(
    layers: Sequence[Layer],
    flat: Sequence[bool],
    shifts: Sequence[Tensor] | None,
    examples: int | None,
    seen: dict[str, Seen],
) -> Iterator[None]:
    def make(index: int, layer: Layer) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
            if layer.name in seen:
                refuse(
                    "a layer must be used once in a forward pass",
                    f"{layer.name!r}, called again",
                    "Use hs.Hessian(problem).block(...) for weights that are shared between calls.",
                )
            z = layer.spread(output, examples).contiguous()
            shape = z.shape
            if flat[index]:
                z = z.flatten(0, 1).unsqueeze(1)
            if not z.requires_grad:
                z = z.detach().requires_grad_()
            seen[layer.name] = Seen(layer, args[0] if args else kwargs["input"], z, flat[index])
            shifted = z if shifts is None else z + shifts[index]
            return layer.gather(shifted.reshape(shape), output, examples)

        return hook

    handles = [layer.module.register_forward_hook(make(i, layer), with_kwargs=True) for i, layer in enumerate(layers)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
