"""How many Krylov vectors fit."""

from __future__ import annotations

import torch

from ..memory import free_bytes
from ..operators import LinearOperator


def vectors_that_fit(op: LinearOperator) -> int:
    """Vectors of this operator that fill a quarter of the free memory, on the average of all processes."""
    itemsize = torch.empty(0, dtype=op.dtype, device="cpu").element_size()
    own = free_bytes(op.device) // 4 // (itemsize * max(1, op.layout.local_size))
    # Processes that share vectors must agree on how many they keep.
    total = op.layout.sum(torch.tensor([own, 1.0], dtype=torch.float64, device=op.device))
    return int(total[0] // total[1])
