"""Squared per-example gradients of a projection of the outputs, layer by layer, without forming the gradients.

For a linear layer the gradient of example n is δ_n x_nᵀ: its squared norm is |δ_n|²|x_n|², and the squares summed over
examples are (δ∘δ)ᵀ(x∘x). One backward pass to the layers' outputs (not to their weights) gives every δ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..curvature.data import examples_in, map_tensors
from ..curvature.losses.base import OutputLoss
from ..curvature.problem import Problem
from .arrangement import Arrangement
from .capturing import Capture, CapturedLayer
from .kinds import Roles
from .kinds.base import ExampleSquares
from .kinds.convolution import Convolution
from .layer import LayerFacts
from .shared_captures import captured

_PATCHES_AT_A_TIME = 128  # examples whose unfolded images are held at once


class ExampleGradients:
    """The exact layers of a problem, and their squared per-example gradients batch by batch."""

    def __init__(self, problem: Problem, layers: Iterable[LayerFacts]) -> None:
        self.problem = problem
        self.layers = {layer.name: layer for layer in layers}

    def pieces(self) -> Iterator[Any]:
        """The data in parts small enough for what the layers hold."""
        convolutions = any(isinstance(layer.kind, Convolution) for layer in self.layers.values())
        for batch in self.problem.batches:
            size = examples_in(batch)
            if size is None or not convolutions or size <= _PATCHES_AT_A_TIME:
                yield batch
                continue
            for start in range(0, size, _PATCHES_AT_A_TIME):
                stop = start + _PATCHES_AT_A_TIME
                yield map_tensors(batch, lambda t, a=start, b=stop: t[a:b])  # type: ignore[misc]

    def capture(self, batch: Any) -> Capture:
        """One forward pass in which only the layers' outputs carry a graph."""
        return captured(self.problem, batch, self.layers)

    def squares(self, run: Capture, cotangents: Iterable[Tensor], entries: bool) -> dict[str, Tensor]:
        """Σ over `cotangents` of squared per-example gradients: their norms `(N,)`, or with `entries` over examples."""
        terms = run.terms
        assert isinstance(terms, OutputLoss)
        facts = [self.layers[layer.name] for layer in run.layers]
        sums = [example_squares(layer, known, entries) for layer, known in zip(run.layers, facts, strict=True)]
        for cotangent in cotangents:
            for total, known, delta in zip(sums, facts, run.gradients(cotangent), strict=True):
                total.add(known.output_examples.first(delta))
        found: dict[str, Tensor] = {}
        for layer, total in zip(run.layers, sums, strict=True):
            parts = total.result()
            found |= {name: parts[role] for role, name in (("weight", layer.weight), ("bias", layer.bias)) if name}
        return found


def example_squares(layer: CapturedLayer, known: LayerFacts, entries: bool) -> ExampleSquares:
    """The accumulator of a layer's kind; any arrangement of the examples is served, the usual one fastest."""
    plain = known.input_examples == known.output_examples == Arrangement()
    roles = example_first(layer.roles, known)
    return (
        layer.kind.example_squares(roles, entries) if plain or layer.kind.any_axes else ExampleSquares(roles, entries)
    )


def example_first(roles: Roles, known: LayerFacts) -> Roles:
    """The same call with examples in the first axis of input and output, and the input as a number."""
    inputs, outputs = known.input_examples, known.output_examples
    if inputs == outputs == Arrangement():
        return replace(roles, x=roles.x.detach())

    def function(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return outputs.first(roles.function(inputs.back(x), weight, bias))

    return Roles(inputs.first(roles.x.detach()), roles.weight, roles.bias, function, roles.options)


def total_of(squares: dict[str, Tensor], names: Iterable[str]) -> float:
    """The sum over the named parameters and all examples, in float64."""
    return sum(float(squares[name].double().sum()) for name in names if name in squares)


def one_row_each(run: Capture, batch: Any) -> bool:
    """Whether the loss counts every example of the batch once, so that a row of it is an example."""
    return isinstance(run.terms, OutputLoss) and len(run.terms.f) == examples_in(batch)


def zeros(problem: Problem) -> Tensor:
    """A flat float64 vector to sum into."""
    return torch.zeros(problem.space.size, dtype=torch.float64, device=problem.device)
