"""Examples of a kind that the first ones are not: padded, with labels that do not count, with answers beyond the text.

What was found out on the first examples of dict batches need not hold on these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..data import examples_in, map_tensors

MOST = 8  # kinds that are looked at
POSITIONS = ("start_positions", "end_positions")


def odd_examples(batches: Iterable[Any], known: int) -> Iterator[tuple[int, int, Any]]:
    """(batch, example, it beside another one): the first of each kind that is not among the first `known` examples."""
    seen: set[tuple[bool, ...]] = set()
    found = 0
    for number, batch in enumerate(batches):
        size = examples_in(batch) if isinstance(batch, Mapping) else None
        if size is None:
            continue
        for place, kind in enumerate(zip(*(mark.tolist() for mark in _marks(batch, size)), strict=True)):
            if kind not in seen and not (number == 0 and place < known) and found < MOST:
                found += 1
                yield number, place, _beside_another(batch, place, size)
            seen.add(kind)


def _marks(batch: Mapping[str, Any], size: int) -> list[Tensor]:
    """What may make an example different, one truth value for each."""
    whole = {name: t for name, t in batch.items() if isinstance(t, Tensor) and not t.is_floating_point() and len(t) == size}  # fmt: skip
    rows = {name: t.reshape(size, -1) for name, t in whole.items()}
    masks = {name: t == 0 for name, t in rows.items() if "mask" in name}
    marks = [torch.zeros(size, dtype=torch.bool, device="cpu"), *(hidden.any(1) for hidden in masks.values())]
    for name in sorted(rows.keys() - masks.keys()):
        marks += [(rows[name] < 0).any(1), (rows[name] == -100).any(1), (rows[name] == -100).all(1)]
    labels, text = rows.get("labels"), rows.get("input_ids")
    if labels is not None:
        same = (hidden for hidden in masks.values() if hidden.shape == labels.shape)
        marks += [((labels >= 0) & hidden).any(1) for hidden in same]
    if text is not None:
        marks += [(rows[name] >= text.shape[1]).any(1) for name in POSITIONS if name in rows]
    return marks


def _beside_another(batch: Any, place: int, size: int) -> Any:
    """Two examples: where only one term of two counts, a mean over what counts differs from one over examples."""
    chosen = [place] if size == 1 else [(place + 1) % size, place]
    return map_tensors(batch, lambda t: t[chosen] if t.ndim and len(t) == size else t)
