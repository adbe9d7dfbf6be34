"""What tells one matrix from another: digests of the tensors it is made of."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def digest(*tensors: Tensor) -> str:
    """A short text that changes with any bit, shape or type of these tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(repr((tuple(tensor.shape), str(tensor.dtype))).encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:32]
