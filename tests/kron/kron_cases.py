"""Problems with layers of every kind, and the layer's Hessian by double backward as the truth."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from hesscope.zoo.models import SmallGPT, fully_connected, initialised_by

DOUBLE = torch.float64


def block_by_double_backward(problem: hs.Problem, loss: Callable[[nn.Module], Tensor], layer: str) -> Tensor:
    """∂²L/∂W² of one layer, row by row, of the loss written out without the library."""
    weight = problem.model.get_submodule(layer).weight
    (gradient,) = torch.autograd.grad(loss(problem.model), weight, create_graph=True)
    rows = [
        torch.autograd.grad(entry, weight, retain_graph=True, materialize_grads=True)[0].reshape(-1)
        for entry in gradient.reshape(-1)
    ]
    return torch.stack(rows)


def relu_mlp(classes: int = 4, examples: int = 23) -> tuple[hs.Problem, Callable[[nn.Module], Tensor]]:
    model = fully_connected(6, 2, 5, classes, rng=hs.Rng(1)).double()
    draw = hs.Rng(2).torch()
    x, y = (
        torch.randn(examples, 5, generator=draw, dtype=DOUBLE),
        torch.randint(0, classes, (examples,), generator=draw),
    )
    return hs.Problem.of(model, "cross_entropy", (x, y), batch_size=7), lambda net: F.cross_entropy(net(x), y)


def weighted_tanh_mlp() -> tuple[hs.Problem, Callable[[nn.Module], Tensor]]:
    with initialised_by(hs.Rng(3)):
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    draw = hs.Rng(4).torch()
    x, y = torch.randn(17, 4, generator=draw, dtype=DOUBLE), torch.randint(0, 3, (17,), generator=draw)
    y[::5] = -100
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.3, 1.0, 2.5], dtype=DOUBLE))
    return hs.Problem.of(model, loss, (x, y), batch_size=6), lambda net: loss(net(x), y)


def tokens() -> tuple[hs.Problem, Callable[[nn.Module], Tensor]]:
    with initialised_by(hs.Rng(5)):
        model = SmallGPT(vocabulary=5, width=4, heads=2, layers=1, length=4).double()
    draw = hs.Rng(6).torch()
    batches = []
    for rows, length in ((3, 4), (2, 3)):
        ids = torch.randint(0, 5, (rows, length), generator=draw)
        labels = torch.randint(0, 5, (rows, length), generator=draw)
        labels[0, -1] = -100
        batches.append((ids, labels))

    def loss(net: nn.Module) -> Tensor:
        total, count = torch.zeros((), dtype=DOUBLE), 0
        for ids, labels in batches:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                logits = net(ids)
            total = total + F.cross_entropy(logits.transpose(1, 2), labels, reduction="sum")
            count += int((labels != -100).sum())
        return total / count

    return hs.Problem.of(model, nn.CrossEntropyLoss(), batches), loss


def convolutions(activation: type[nn.Module] = nn.ReLU) -> tuple[hs.Problem, Callable[[nn.Module], Tensor]]:
    """Stride, padding, dilation, groups, circular padding, batch-norm with frozen statistics, pooling."""
    with initialised_by(hs.Rng(7)):
        model = nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2),
            activation(),
            nn.Conv2d(4, 4, 3, padding="same", dilation=2, padding_mode="circular"),
            nn.BatchNorm2d(4),
            activation(),
            nn.Conv2d(4, 3, (2, 1), stride=(1, 2), bias=False),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(3, 3),
        ).double()
        x = torch.randn(9, 2, 8, 7, dtype=DOUBLE)
        model(x)
    model.eval()
    y = torch.randint(0, 3, (9,), generator=hs.Rng(8).torch())
    return hs.Problem.of(model, "cross_entropy", (x, y), batch_size=4), lambda net: F.cross_entropy(net(x), y)


def sentences() -> tuple[hs.Problem, Callable[[nn.Module], Tensor]]:
    """Conv1d and Linear over positions that interact, mean squared error."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Conv1d(3, 4, 2, padding=1)
            self.each = nn.Linear(4, 3)
            self.join = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            z = self.each(torch.relu(self.mix(x)).transpose(1, 2))
            return self.join(torch.relu(z).sum(1))

    with initialised_by(hs.Rng(9)):
        model = Model().double()
    draw = hs.Rng(10).torch()
    x, y = torch.randn(8, 3, 4, generator=draw, dtype=DOUBLE), torch.randn(8, 2, generator=draw, dtype=DOUBLE)
    return hs.Problem.of(model, "mse", (x, y), batch_size=5), lambda net: F.mse_loss(net(x), y)
