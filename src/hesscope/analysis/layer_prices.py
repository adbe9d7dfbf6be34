"""Layers and their parameters, and what a table of them takes."""

from __future__ import annotations

import numpy as np

from ..curvature import Problem
from ..layers.example_factors import is_factored, row_count
from ..partition import Partition


def expected_products(problem: Problem) -> int:
    """What layers without a closed form take, roughly."""
    known = row_count(problem) is not None
    sizes = dict(zip(problem.space.names, problem.space.shapes, strict=True))
    counts = [
        sum(int(np.prod(sizes[name])) for name in names)
        for names in parameters_by_layer(problem).values()
        if not (known and is_factored(problem, names))
    ]
    return sum(min(count, 100) for count in counts)


def parameters_by_layer(problem: Problem) -> dict[str, list[str]]:
    """Which selected parameters belong to each layer, in the order of the parameters."""
    partition = Partition.by("layer", problem)
    found: dict[str, list[str]] = {name: [] for name in partition.names}
    for name, place in problem.space.slices():
        found[partition.names[int(partition.labels[place.start])]].append(name)
    return found
