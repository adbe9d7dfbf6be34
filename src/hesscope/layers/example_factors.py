"""The Hessian of layers as AᵀA: a row of A is one example's gradient along one column of the loss's curvature."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..curvature.data import examples_in
from ..curvature.gradient_mode import differentiable
from ..curvature.losses.base import OutputLoss
from ..curvature.problem import Problem
from .capturing import CapturedLayer
from .example_gradients import ExampleGradients, example_first, one_row_each
from .facts import facts_of
from .kinds.base import example_gradients
from .known_traces import MOST_COLUMNS
from .layer import LayerFacts


def row_count(problem: Problem) -> int | None:
    """How many rows A has; None where the data is streamed or shared, or the loss has no factor with few columns."""
    facts = facts_of(problem) if problem.has_outputs and not problem.distributed and problem.batches.held else None
    if facts is None or not facts.rows_are_examples or not 0 < facts.columns <= MOST_COLUMNS:
        return None
    sizes = [examples_in(batch) for batch in problem.batches]
    return None if None in sizes else facts.columns * sum(size or 0 for size in sizes)


def served(problem: Problem) -> set[str]:
    """The selected parameters whose own block of the Hessian is AᵀA: those of exact layers without a functional part."""
    exact = (layer for layer in facts_of(problem).exact if layer.gauss_newton)
    return {name for layer in exact for name in layer.parameters if name in problem.parameters}


def is_factored(problem: Problem, names: Sequence[str]) -> bool:
    """Whether the joint block of these parameters is AᵀA: they are of one layer, since between two in series, as in an
    adapter's two matrices, there is a functional part."""
    exact = (layer for layer in facts_of(problem).exact if layer.gauss_newton)
    return any(set(names) <= set(layer.parameters) for layer in exact)


@differentiable()
def example_columns(problem: Problem, names: Sequence[str]) -> dict[str, Tensor] | None:
    """A for each of these parameters, `(rows, entries)` with the entries in an order of their own.

    Scaled so that AᵀA is the block of the Hessian. None where a batch turns out to count its examples differently.
    """
    wanted = set(names)
    layers = [layer for layer in facts_of(problem).exact if wanted & set(layer.parameters)]
    gradients = ExampleGradients(problem, layers)
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for batch in gradients.pieces():
        run = gradients.capture(batch)
        if not one_row_each(run, batch):
            return None
        assert isinstance(run.terms, OutputLoss)
        for column in map(run.terms.column, range(run.terms.columns())):
            for layer, delta in zip(run.layers, run.gradients(column), strict=True):
                for name, part in _of_layer(layer, gradients.layers[layer.name], delta).items():
                    if name in wanted:
                        found[name].append(part.flatten(1))
    root = problem.scale**0.5
    return {name: torch.cat(parts).mul_(root) for name, parts in found.items() if parts}


def _of_layer(layer: CapturedLayer, known: LayerFacts, delta: Tensor) -> dict[str, Tensor]:
    """The gradients of weight and bias of every example, from those of z."""
    if known.multiplies and known.groups == 1:
        units, patches = known.units(delta), known.patches(layer)[:, :, 0]
        both: tuple[Tensor, ...] = (torch.bmm(units.transpose(1, 2), patches), units.sum(1))
        return {name: part for name, part in zip((layer.weight, layer.bias), both, strict=True) if name}
    own = [
        name for name, role in ((layer.weight, layer.roles.weight), (layer.bias, layer.roles.bias)) if role is not None
    ]
    parts = example_gradients(example_first(layer.roles, known), known.output_examples.first(delta))
    return {name: part for name, part in zip(own, parts, strict=True) if name}
