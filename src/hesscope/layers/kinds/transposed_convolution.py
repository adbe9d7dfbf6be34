"""Transposed convolutions: affine in their weight, but no matrix that multiplies a patch of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import nn

from .base import Kind, Roles, argument


class TransposedConvolution(Kind):
    """z = conv_transpose(x, W) + b; its weight is `(inputs, outputs / groups, *kernel)`."""

    name = "transposed convolution"
    functions = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
    modules = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)

    def roles(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Roles | None:
        x, weight, bias = (argument(args, kwargs, i, n) for i, n in enumerate(("input", "weight", "bias")))
        if x.ndim != weight.ndim:
            return None
        rest = args[3:]
        more = {name: value for name, value in kwargs.items() if name not in ("input", "weight", "bias")}
        return Roles(x, weight, bias, lambda x, w, b: function(x, w, b, *rest, **more), {})

    def neuron_axis(self, parameter: str) -> int | None:
        return None  # with groups, output channels are spread over two axes
