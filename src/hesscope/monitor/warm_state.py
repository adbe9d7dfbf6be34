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


def state_of(reader: Reader, budget: Budget) -> tuple[dict[str, Any], dict[str, Array]]:
    """Numbers and vectors."""
    numbers = {"count": reader.count, "pairs": list(reader.shares.pairs), "budget": budget.state()}
    vectors = {"start": reader.start, "other_start": reader.other_start}
    return numbers, {name: v.detach().cpu().numpy() for name, v in vectors.items() if v is not None}


def restore_state(numbers: dict[str, Any], vectors: dict[str, Array], reader: Reader, budget: Budget) -> None:
    """Take up what `state_of` wrote; vectors that do not fit are left out, which costs products and nothing else."""
    try:
        budget.restore(numbers["budget"])
        reader.count = int(numbers["count"])
        pairs = [(float(part), float(whole)) for part, whole in numbers["pairs"]]
    except (KeyError, TypeError, ValueError):
        return
    reader.shares = DiagonalShare(deque(pairs, maxlen=WINDOW))
    for name in ("start", "other_start"):
        vector = vectors.get(name)
        if vector is not None and vector.ndim == 2 and bool(np.isfinite(vector).all()):
            setattr(reader, name, torch.from_numpy(vector))
