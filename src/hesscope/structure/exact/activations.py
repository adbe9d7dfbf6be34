"""Per-example curvature M_n between layer outputs, one neuron at a time: products with shifts, never a weight's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...curvature.engines.backward import linear_at
from ...operators.given import MatrixName
from .output_curvature import OutputCurvature, through_weight
from .stack import Structure, Watched

_CHUNK_NUMBERS = 48_000_000


@dataclass
class NeuronRows:
    """For a chunk of neurons of layer `layer`: M[q][n, k, j] to every layer q >= layer, and R[q] = ∂x_q/∂z_k."""

    layer: int
    first: int
    count: int
    curvature: dict[int, Tensor]
    moved: dict[int, Tensor]


class Activations:
    """Inputs, output gradients and curvature of the structured layers over all data; nothing is scaled by the loss's mean."""

    def __init__(self, structure: Structure, matrix: MatrixName) -> None:
        self.structure, self.matrix = structure, matrix
        inputs: list[list[Tensor]] = [[] for _ in structure.layers]
        gradients: list[list[Tensor]] = [[] for _ in structure.layers]
        rows = []
        self._only: Watched | None = None
        for number, batch in enumerate(structure.problem.batches):
            seen = structure.watch(batch)
            self._only = seen if number == 0 else None
            gradient = torch.autograd.grad(
                seen.terms.f, seen.outputs, seen.terms.output_gradient(), retain_graph=True, allow_unused=True
            )
            for q, layer in enumerate(structure.layers):
                inputs[q].append(layer.augment(_counted(seen, seen.inputs[q].detach())))
                g = gradient[q]
                gradients[q].append(_counted(seen, torch.zeros_like(seen.outputs[q]) if g is None else g))
            rows.append(seen.terms)
        self.inputs = [torch.cat(parts) for parts in inputs]
        self.output_gradients = [torch.cat(parts) for parts in gradients]
        self.output = OutputCurvature.of(rows) if structure.has_output else None

    @property
    def hidden(self) -> range:
        """The layers whose curvature needs products; that of the output layer is known from the loss."""
        return range(len(self.structure.layers) - (1 if self.structure.has_output else 0))

    def rows(self, layer: int, skip: int = 0) -> Iterator[NeuronRows]:
        """M and R of one hidden layer, in chunks of neurons that fit in memory; the first `skip` neurons are not needed."""
        layers = self.structure.layers
        per_neuron = len(self.inputs[0]) * sum(q.outputs + q.width for q in layers[layer:])
        chunk = max(1, _CHUNK_NUMBERS // per_neuron)
        total = layers[layer].outputs
        for first in range(0, total, chunk):
            count = min(chunk, total - first)
            if first + count <= skip:
                continue
            curvature: dict[int, list[Tensor]] = {q: [] for q in range(layer, len(layers))}
            moved: dict[int, list[Tensor]] = {q: [] for q in range(layer + 1, len(layers))}
            for trace in self._traces():
                for q, value in trace.curvature(layer, first, count).items():
                    curvature[q].append(value)
                if self.matrix == "hessian":
                    for q, value in trace.moved(layer, first, count).items():
                        moved[q].append(layers[q].augment_derivative(value))
            yield NeuronRows(
                layer,
                first,
                count,
                {q: torch.cat(parts) for q, parts in curvature.items()},
                {q: torch.cat(parts) for q, parts in moved.items() if parts},
            )

    def _traces(self) -> Iterator[_Trace]:
        if self._kept is not None:
            yield self._kept
            return
        for batch in self.structure.problem.batches:
            yield _Trace(self.structure.watch(batch), self.matrix)

    @cached_property
    def _kept(self) -> _Trace | None:
        """The graph of an only batch is kept; those of several are rebuilt for every chunk, so that memory stays bounded."""
        return None if self._only is None else _Trace(self._only, self.matrix)


class _Trace:
    """Derivatives of one batch in its shifts."""

    def __init__(self, seen: Watched, matrix: MatrixName) -> None:
        self.seen, self.matrix = seen, matrix
        rows, shifts = seen.terms, seen.outputs
        self._first: list[Any]
        inner = None if seen.head is None or matrix != "hessian" else through_weight(rows, seen.head[1])
        if inner is not None and seen.head is not None:
            # Second derivatives see of the loss only its gradient and curvature in the head's inputs, which have few
            # columns where there are many classes.
            x, weight = seen.head
            gradient = rows.output_gradient() @ weight + (inner @ (x - x.detach())[:, :, None])[:, :, 0]
            self._first = list(torch.autograd.grad(x, shifts, gradient, create_graph=True, allow_unused=True))
        elif matrix == "hessian":
            gradient = rows.differentiable_output_gradient()
            self._first = list(torch.autograd.grad(rows.f, shifts, gradient, create_graph=True, allow_unused=True))
        else:
            self._probe = linear_at(rows.f)
            self._first = list(torch.autograd.grad(rows.f, shifts, self._probe, create_graph=True, allow_unused=True))

    def curvature(self, layer: int, first: int, count: int) -> dict[int, Tensor]:
        """∂²ℓ/∂z_k∂z_q for neurons k of one layer and all layers from it on: `(n, count, outputs of q)`."""
        targets = self.seen.outputs[layer:]
        columns: list[list[Tensor]] = [[] for _ in targets]
        for neuron in range(first, first + count):
            pulled = self._row(layer, neuron, targets)
            for column, target, value in zip(columns, targets, pulled, strict=True):
                column.append(_counted(self.seen, torch.zeros_like(target) if value is None else value))
        return {layer + q: torch.stack(column, 1) for q, column in enumerate(columns)}

    def _row(self, layer: int, neuron: int, targets: list[Tensor]) -> tuple[Tensor | None, ...]:
        source = self._first[layer]
        if source is None or not source.requires_grad:
            return (None,) * len(targets)
        unit = torch.zeros_like(source)
        unit[..., neuron] = 1
        if self.matrix == "hessian":
            return torch.autograd.grad(source, targets, unit, retain_graph=True, allow_unused=True)
        (image,) = torch.autograd.grad(source, self._probe, unit, retain_graph=True)
        curved = self.seen.terms.curvature(image)
        return torch.autograd.grad(self.seen.terms.f, targets, curved, retain_graph=True, allow_unused=True)

    def moved(self, layer: int, first: int, count: int) -> dict[int, Tensor]:
        """∂x_q/∂z_k: how the inputs of later layers move with neurons k."""
        out = {}
        for q in range(layer + 1, len(self.seen.inputs)):
            x = self.seen.inputs[q]
            shape = (len(x), count, x.shape[-1])
            value = x.new_zeros(shape)
            if x.requires_grad:
                probe = linear_at(x)
                (back,) = torch.autograd.grad(
                    x, self.seen.outputs[layer], probe, create_graph=True, allow_unused=True, retain_graph=True
                )
                if back is not None:
                    for k in range(count):
                        unit = torch.zeros_like(back)
                        unit[..., first + k] = 1
                        (image,) = torch.autograd.grad(back, probe, unit, retain_graph=True)
                        value[:, k] = image
            out[q] = value if self.seen.kept is None else value[self.seen.kept]
        return out


def _counted(seen: Watched, value: Tensor) -> Tensor:
    """The rows that the loss counts, as a matrix."""
    flat = value.reshape(-1, value.shape[-1])
    return flat if seen.kept is None else flat[seen.kept]
