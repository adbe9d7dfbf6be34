"""A fixed batch that belongs to the monitor: taken once, copied, and at no cost to whoever draws from the same loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from ..curvature.data import Batches, examples_in, first_examples, is_example_tuple, map_tensors
from ..curvature.models.random_state import random_state_kept


def held_out(data: Any, examples: int) -> Any:
    """At most `examples` examples of `data`, as copies; data of another form is handed on as it is."""
    if data is None or isinstance(data, Mapping) or is_example_tuple(data):
        return _copied(first_examples(data, examples))
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return Subset(data, range(min(examples, len(data))))  # type: ignore[arg-type]
    if isinstance(data, str | bytes | Tensor) or not hasattr(data, "__iter__"):
        return data  # refused by name when the problem is made
    kept: list[Any] = []
    missing = examples
    with _generators_kept(data), random_state_kept():
        for batch in data:
            size = examples_in(batch)
            kept.append(_copied(batch if size is None or size <= missing else first_examples(batch, missing)))
            missing -= size or 1
            if missing <= 0:
                break
    return kept


def count_examples(batches: Batches) -> int:
    """How many examples a problem holds."""
    return sum(examples_in(batch) or 1 for batch in batches)


def _copied(batch: Any) -> Any:
    return map_tensors(batch, lambda t: t.detach().clone())


@contextmanager
def _generators_kept(loader: Any) -> Iterator[None]:
    """A loader's own generators go on where they were."""
    holders = [loader, getattr(loader, "sampler", None)] if isinstance(loader, DataLoader) else []
    found = {id(g): g for g in (getattr(h, "generator", None) for h in holders) if isinstance(g, torch.Generator)}
    states = {key: generator.get_state() for key, generator in found.items()}
    try:
        yield
    finally:
        for key, generator in found.items():
            generator.set_state(states[key])
