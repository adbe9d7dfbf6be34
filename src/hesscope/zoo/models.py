"""Small classifiers with named layers: fully connected F-n^m, LeNet5, VGG11-W, and the ones of the sibling files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import nn

from ..errors import refuse
from ..rng import Rng
from .gpt import SmallGPT as SmallGPT
from .resnets import ResNet18 as ResNet18
from .resnets import cifar_resnet as cifar_resnet
from .resnets import load_cifar_resnet as load_cifar_resnet


@contextmanager
def initialised_by(rng: Rng) -> Iterator[None]:
    """Modules made inside draw their weights from `rng`; torch's own generator is left as it was found."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.key)
        yield


def fully_connected(
    width: int,
    depth: int,
    inputs: int = 784,
    classes: int = 10,
    *,
    batch_norm: bool = False,
    rng: Rng | int | None = None,
) -> nn.Sequential:
    """F-n^m: `depth` hidden ReLU layers of `width`, named fc1, fc2, ...; `batch_norm` after each ReLU (no parameters).

    >>> [name for name, _ in fully_connected(8, 2, 4, 3).named_parameters()][::2]
    ['fc1.weight', 'fc2.weight', 'fc3.weight']
    """
    if width < 1 or depth < 0:
        refuse("a fully connected network needs width >= 1 and depth >= 0", f"{width}, {depth}", "F-200^2 is 200, 2.")
    sizes = [inputs, *[width] * depth, classes]
    parts: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    with initialised_by(Rng.of(rng)):
        for i, (before, after) in enumerate(pairwise(sizes), start=1):
            parts[f"fc{i}"] = nn.Linear(before, after)
            if i <= depth:
                parts[f"relu{i}"] = nn.ReLU()
                if batch_norm:
                    parts[f"bn{i}"] = nn.BatchNorm1d(after, affine=False)
    return nn.Sequential(parts)


def lenet5(
    shape: tuple[int, int, int] = (3, 32, 32),
    classes: int = 10,
    *,
    fc1: int = 120,
    conv2: int = 16,
    batch_norm: bool = False,
    rng: Rng | int | None = None,
) -> nn.Sequential:
    """LeNet5 with ReLU and max-pooling: conv1, conv2, fc1, fc2, fc3; LeNet5-(fc1-80) is fc1=80."""
    channels, height, width = shape
    rows, columns = ((height - 4) // 2 - 4) // 2, ((width - 4) // 2 - 4) // 2
    if min(rows, columns) < 1:
        refuse("LeNet5 needs images of at least 16 x 16", f"{height} x {width}", "Upsample them.")

    def block(name: str, layer: nn.Module, features: int, flat: bool) -> list[tuple[str, nn.Module]]:
        norm: type[nn.Module] = nn.BatchNorm1d if flat else nn.BatchNorm2d
        out: list[tuple[str, nn.Module]] = [(name, layer), (f"relu_{name}", nn.ReLU())]
        return [*out, (f"bn_{name}", norm(features, affine=False))] if batch_norm else out

    with initialised_by(Rng.of(rng)):
        return nn.Sequential(
            OrderedDict(
                [
                    *block("conv1", nn.Conv2d(channels, 6, 5), 6, False),
                    ("maxpool1", nn.MaxPool2d(2)),
                    *block("conv2", nn.Conv2d(6, conv2, 5), conv2, False),
                    ("maxpool2", nn.MaxPool2d(2)),
                    ("flatten", nn.Flatten()),
                    *block("fc1", nn.Linear(conv2 * rows * columns, fc1), fc1, True),
                    *block("fc2", nn.Linear(fc1, 84), 84, True),
                    ("fc3", nn.Linear(84, classes)),
                ]
            )
        )


def vgg11(width: int = 32, classes: int = 10, channels: int = 3, *, rng: Rng | int | None = None) -> nn.Sequential:
    """VGG11-W for 32 x 32 images: conv1 to conv8 with `width` channels each, five poolings, fc1; no dropout."""
    pooled_after = (1, 2, 4, 6, 8)
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    with initialised_by(Rng.of(rng)):
        for i in range(1, 9):
            parts[f"conv{i}"] = nn.Conv2d(channels if i == 1 else width, width, 3, padding=1)
            parts[f"relu{i}"] = nn.ReLU()
            if i in pooled_after:
                parts[f"maxpool{i}"] = nn.MaxPool2d(2)
        parts["flatten"] = nn.Flatten()
        parts["fc1"] = nn.Linear(width, classes)
    return nn.Sequential(parts)
