"""Layers and their parameters, and what a table of them takes."""

from __future__ import annotations

import numpy as np
import torch

from ..curvature import Problem
from ..layers.example_factors import is_factored, row_count
from ..memory import free_bytes
from ..partition import Partition


def expected_products(problem: Problem) -> int:
    """What layers without a closed form that fits take, roughly."""
    factored = factored_sizes(problem)
    return sum(min(size, 100) for layer, size in layer_sizes(problem).items() if layer not in factored)


def expected_flops(problem: Problem) -> float:
    """What the closed forms of the others take: the smaller of AᵀA and AAᵀ."""
    rows = row_count(problem) or 0
    return sum(2.0 * rows * size * min(rows, size) for size in factored_sizes(problem).values())


def factored_sizes(problem: Problem) -> dict[str, int]:
    """How many parameters have the layers that are AᵀA, with an A of the gradients of examples that memory holds."""
    rows = row_count(problem)
    if rows is None:
        return {}
    room, blocks = factor_room(problem), parameters_by_layer(problem)
    sizes = layer_sizes(problem).items()
    return {layer: size for layer, size in sizes if rows * size <= room and is_factored(problem, blocks[layer])}


def factor_room(problem: Problem) -> float:
    """How many numbers such factors may hold at once."""
    return min(0.2 * free_bytes(torch.device("cpu")), 1e9) / (torch.finfo(problem.dtype).bits // 8)


def layer_sizes(problem: Problem) -> dict[str, int]:
    """How many parameters each layer has."""
    shapes = dict(zip(problem.space.names, problem.space.shapes, strict=True))
    blocks = parameters_by_layer(problem)
    return {layer: sum(int(np.prod(shapes[name])) for name in names) for layer, names in blocks.items()}


def parameters_by_layer(problem: Problem) -> dict[str, list[str]]:
    """Which selected parameters belong to each layer, in the order of the parameters."""
    partition = Partition.by("layer", problem)
    found: dict[str, list[str]] = {name: [] for name in partition.names}
    for name, place in problem.space.slices():
        found[partition.names[int(partition.labels[place.start])]].append(name)
    return found
