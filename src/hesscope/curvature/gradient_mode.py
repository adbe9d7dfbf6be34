"""Derivatives wherever the caller stands: inside `torch.no_grad()`, `torch.inference_mode()` or autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

import torch
from torch import Tensor

from ..operators.autocast import own_types


@contextmanager
def differentiable() -> Iterator[None]:
    """Gradients are recorded inside the block, in the tensors' own types, whatever is switched on around it.

    Lightning validates under `inference_mode`; a Hessian made there must not be zero. Usable as a decorator.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(own_types())
        yield


def plain(tensor: Tensor) -> Tensor:
    """The tensor without history; copied where it comes from inference mode, as no gradient may pass such a tensor."""
    return tensor.clone().detach() if tensor.is_inference() else tensor.detach()


@cache
def backward_loaded() -> None:
    """Torch loads modules for a second in the first backward pass that is given a slope: here, and not while a pass is timed
    to tell what a run will take."""
    with differentiable():
        x = torch.ones(1, dtype=torch.float32, device="cpu", requires_grad=True)
        torch.autograd.grad(2 * x, x, torch.ones(1, dtype=torch.float32, device="cpu"))
