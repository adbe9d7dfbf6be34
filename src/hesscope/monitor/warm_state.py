"""What a restart of training goes on from: warm vectors, the time accounts, where the reader was."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch

from ..measure import Array
from .budget import Budget
from .probes import WINDOW, DiagonalShare
from .reader import Reader
from .warm_start import WarmStart

STARTS = ("start", "other_start")


def state_of(reader: Reader, budget: Budget) -> tuple[dict[str, Any], dict[str, Array]]:
    """Numbers and vectors."""
    numbers = {"count": reader.count, "pairs": list(reader.shares.pairs), "budget": budget.state()}
    vectors: dict[str, Array] = {}
    for name in STARTS:
        kept: WarmStart | None = getattr(reader, name)
        if kept is not None:
            vectors[name] = kept.vectors.detach().cpu().numpy()
            vectors[f"{name}_matrix"] = kept.matrix
            if kept.earlier is not None:
                vectors[f"{name}_earlier"] = kept.earlier.detach().cpu().numpy()
    return numbers, vectors


def restore_state(numbers: dict[str, Any], vectors: dict[str, Array], reader: Reader, budget: Budget) -> None:
    """Take up what `state_of` wrote; vectors that do not fit are left out, which costs products and nothing else."""
    try:
        budget.restore(numbers["budget"])
        reader.count = int(numbers["count"])
        pairs = [(float(part), float(whole)) for part, whole in numbers["pairs"]]
    except (KeyError, TypeError, ValueError):
        return
    reader.shares = DiagonalShare(deque(pairs, maxlen=WINDOW))
    for name in STARTS:
        setattr(reader, name, _remembered(name, vectors))


def _remembered(name: str, vectors: dict[str, Array]) -> WarmStart | None:
    found, matrix, earlier = (vectors.get(key) for key in (name, f"{name}_matrix", f"{name}_earlier"))
    if found is None or matrix is None or found.ndim != 2 or matrix.shape != (found.shape[1],) * 2:
        return None
    if earlier is not None and earlier.shape != found.shape[:1]:
        return None
    if not all(bool(np.isfinite(one).all()) for one in (found, matrix, earlier) if one is not None):
        return None
    last = None if earlier is None else torch.from_numpy(earlier)
    return WarmStart(torch.from_numpy(found), matrix, last)
