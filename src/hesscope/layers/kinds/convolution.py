"""Convolutions over one, two or three axes, with stride, padding, dilation and groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import ExampleSquares, MatrixKind, Roles, argument
from .outer_squares import CHUNK_BYTES

_NAMES = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_DEFAULTS = (None, None, None, 1, 0, 1, 1)


class Convolution(MatrixKind):
    """z_p = W x_p + b with x_p the patch below position p; other padding modes arrive as padded inputs."""

    name = "convolution"
    functions = (F.conv1d, F.conv2d, F.conv3d)
    modules = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

    def roles(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Roles | None:
        x, weight, bias, stride, padding, dilation, groups = (
            argument(args, kwargs, i, name, default)
            for i, (name, default) in enumerate(zip(_NAMES, _DEFAULTS, strict=True))
        )
        axes = weight.ndim - 2
        if x.ndim != weight.ndim:  # an image without a batch axis is no set of examples
            return None
        kernel = tuple(weight.shape[2:])
        stride, dilation = _each(stride, axes), _each(dilation, axes)
        sides = _sides(padding, kernel, dilation, axes)
        options = {"stride": stride, "dilation": dilation, "groups": groups, "sides": sides}
        return Roles(x, weight, bias, lambda x, w, b: function(x, w, b, stride, padding, dilation, groups), options)

    def groups(self, roles: Roles) -> int:
        return int(roles.options["groups"])

    def patches(self, roles: Roles, x: Tensor) -> Tensor:
        weight, options = roles.weight, roles.options
        assert weight is not None
        x = F.pad(x, options["sides"])
        for axis, (size, step, gap) in enumerate(
            zip(weight.shape[2:], options["stride"], options["dilation"], strict=True), start=2
        ):
            # A window of the kernel's span at every step; of each, the entries that the kernel touches.
            x = x.unfold(axis, gap * (size - 1) + 1, step)[..., ::gap]
        axes = weight.ndim - 2
        # (N, channels, *positions, *kernel) -> (N, positions, groups, channels of a group x kernel)
        moved = x.movedim(1, 1 + axes).flatten(1, axes)
        return moved.reshape(*moved.shape[:2], self.groups(roles), -1)

    def spread(self, z: Tensor) -> Tensor:
        return z.flatten(2).transpose(1, 2)

    def gather(self, units: Tensor, like: Tensor) -> Tensor:
        return units.transpose(1, 2).reshape(like.shape)

    def example_squares(self, roles: Roles, entries: bool) -> ExampleSquares:
        return ConvolutionSquares(roles, entries, self.patches(roles, roles.x))


class ConvolutionSquares(ExampleSquares):
    """Squares of Σ_p δ_p x_pᵀ; few channels make poor matrix products, those of several passes together do."""

    def __init__(self, roles: Roles, entries: bool, patches: Tensor) -> None:
        super().__init__(roles, entries)
        self.patches = patches.transpose(1, 2).flatten(0, 1)
        self.waiting: list[Tensor] = []

    def add(self, delta: Tensor) -> None:
        flat = delta.flatten(2)
        self.bias = self.bias + self.reduce(flat.sum(-1).square())
        self.waiting.append(flat.reshape(self.patches.shape[0], -1, flat.shape[-1]))
        if len(self.waiting) * flat.numel() * flat.element_size() > CHUNK_BYTES:
            self._multiply()

    def result(self) -> dict[str, Tensor]:
        self._multiply()
        return super().result()

    def _multiply(self) -> None:
        if not self.waiting:
            return
        weight = self.roles.weight
        assert weight is not None
        outer = torch.bmm(torch.cat(self.waiting, 1), self.patches).square_()
        squares = outer.reshape(len(outer), len(self.waiting), -1, outer.shape[-1]).sum(1)
        self.weight = self.weight + self.reduce(squares.reshape(len(self.roles.x), *weight.shape))
        self.waiting = []


def _each(value: Any, axes: int) -> tuple[int, ...]:
    given = tuple(value) if isinstance(value, tuple | list) else (value,)
    return given if len(given) == axes else given * axes


def _sides(padding: Any, kernel: tuple[int, ...], dilation: tuple[int, ...], axes: int) -> tuple[int, ...]:
    """Zeros before and after each axis, in the order that `F.pad` takes: last axis first."""
    if padding == "valid":
        padding = 0
    if padding == "same":
        totals = [gap * (size - 1) for size, gap in zip(kernel, dilation, strict=True)]
        both = [(total // 2, total - total // 2) for total in totals]
    else:
        both = [(p, p) for p in _each(padding, axes)]
    return tuple(side for pair in reversed(both) for side in pair)
