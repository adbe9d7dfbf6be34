"""Tensors from what callers give, wherever `torch.set_default_device` would put new ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def tensor_of(given: Any) -> Tensor:
    """A tensor as it is and where it is; arrays, numbers and lists as one on the CPU."""
    return given if isinstance(given, Tensor) else torch.as_tensor(given, device="cpu")
