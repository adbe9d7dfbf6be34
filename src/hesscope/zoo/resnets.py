"""Residual networks for 32 x 32 images: ResNet18-W without batch-norm, and ResNet-20/32 with trained weights."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import refuse


class _PlainBlock(nn.Module):
    """relu(conv(relu(conv(x))) + shortcut(x)), without normalisation."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1)
        self.shortcut = nn.Conv2d(before, width, 1, stride) if stride > 1 or before != width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet18-W: every convolution has `width` channels, no batch-norm, 1 x 1 convolutions on strided shortcuts."""

    def __init__(self, width: int = 48, classes: int = 100, channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1)
        strides = (1, 1, 2, 1, 2, 1, 2, 1)
        self.blocks = nn.Sequential(*[_PlainBlock(width, width, stride) for stride in strides])
        self.fc1 = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.blocks(F.relu(self.conv1(x)))
        logits: Tensor = self.fc1(features.mean((2, 3)))
        return logits


class _NormBlock(nn.Module):
    """The block of He et al. (2015) for CIFAR: parameter-free shortcuts that drop pixels and pad channels."""

    def __init__(self, before: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.widens = before != planes

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.widens:
            pad = out.shape[1] // 4
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, pad, pad))
        return F.relu(out + x)


class CifarResNet(nn.Module):
    """ResNet-(6 blocks + 2) for CIFAR-10: three stages with 16, 32 and 64 channels."""

    def __init__(self, blocks: int, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, 1)
        self.layer2 = _stage(16, 32, blocks, 2)
        self.layer3 = _stage(32, 64, blocks, 2)
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits


def _stage(before: int, planes: int, blocks: int, stride: int) -> nn.Sequential:
    first = _NormBlock(before, planes, stride)
    return nn.Sequential(first, *[_NormBlock(planes, planes, 1) for _ in range(blocks - 1)])


def cifar_resnet(depth: int = 20) -> CifarResNet:
    """ResNet-20, -32, ... for CIFAR-10, freshly initialised, in eval mode."""
    if depth < 8 or (depth - 2) % 6:
        refuse("the depth of a CIFAR ResNet must be 6 k + 2", f"{depth}", "Use 20 or 32.")
    return CifarResNet((depth - 2) // 6).eval()


def load_cifar_resnet(folder: str | os.PathLike[str], depth: int = 20) -> CifarResNet:
    """ResNet-20 or -32 with the trained weights and batch-norm statistics of `resnet{depth}_cifar10.npz`."""
    model = cifar_resnet(depth)
    path = Path(folder) / f"resnet{depth}_cifar10.npz"
    if not path.is_file():
        refuse("the file with trained weights must exist", f"{path.name!r}, not found", "Check the data folder.")
    with np.load(path, allow_pickle=False) as file:
        state = {name: torch.from_numpy(file[name]) for name in file.files}
    missing = model.load_state_dict(state, strict=False)
    absent = [name for name in missing.missing_keys if not name.endswith("num_batches_tracked")]
    if absent or missing.unexpected_keys:
        refuse(
            f"{path.name!r} must hold the arrays of ResNet-{depth}", f"a mismatch at {absent[:3]}", "Check the file."
        )
    return model
