"""Recurrent layers on a GPU: cuDNN's kernels have no second derivative, and in eval mode not even a first one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn


def plain_recurrent_kernels(model: nn.Module) -> AbstractContextManager[Any]:
    """Torch's own kernels for RNN, LSTM and GRU while this model runs: slower, and differentiable to any order."""
    return torch.backends.cudnn.flags(enabled=False) if _is_recurrent(model) else nullcontext()


def recurrent_note(model: nn.Module, device: torch.device) -> str:
    """What results say where that makes a difference."""
    if device.type == "cuda" and _is_recurrent(model) and torch.backends.cudnn.enabled:
        return "; recurrent layers run by torch's own kernels, since cuDNN's have no second derivative"
    return ""


def _is_recurrent(model: nn.Module) -> bool:
    return any(isinstance(module, nn.RNNBase) for module in model.modules())
