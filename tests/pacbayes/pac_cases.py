"""Small classification problems with initial and trained weights."""

from __future__ import annotations

import torch
from torch import nn

import hesscope as hs
from hesscope.rng import Rng
from hesscope.zoo.models import fully_connected, initialised_by


def blobs(count: int, classes: int, dim: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gaussian classes around fixed means."""
    means = 1.2 * torch.randn(classes, dim, generator=torch.Generator().manual_seed(classes))
    draw = torch.Generator().manual_seed(1000 + seed)
    y = torch.randint(0, classes, (count,), generator=draw)
    return means[y] + torch.randn(count, dim, generator=draw), y


def trained(
    classes: int = 3, count: int = 600, dim: int = 6, width: int = 12, depth: int = 1, seed: int = 0, steps: int = 150
) -> tuple[hs.Problem, dict[str, torch.Tensor]]:
    """A fully connected network after a short training, and its weights before."""
    model = fully_connected(width, depth, dim, classes, rng=Rng(seed))
    return fit(model, blobs(count, classes, dim, seed), steps)


def fit(
    model: nn.Module, data: tuple[torch.Tensor, torch.Tensor], steps: int = 150
) -> tuple[hs.Problem, dict[str, torch.Tensor]]:
    """Train by Adam; the problem and the weights before."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        optimiser.step()
    return hs.Problem.of(model, "cross_entropy", data), before


def convolutional(seed: int = 0) -> tuple[hs.Problem, dict[str, torch.Tensor]]:
    """A convolution with a normalisation's parameters: layers that only a draw per batch can serve."""
    with initialised_by(Rng(seed)):
        model = nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.ReLU(), nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(3 * 4, 2, bias=False)
        )
    x, y = blobs(200, 2, 16, seed)
    return fit(model, (x.reshape(-1, 1, 4, 4), y), 60)
