"""What the rows share: a small network, its data, its problem and its operators.

`hs` is untyped on purpose: wrong types are what the table is about.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

hs: Any = importlib.import_module("hesscope")
operators: Any = importlib.import_module("hesscope.operators")
NAN, INF = float("nan"), float("inf")
SIZE = 43  # parameters of `network()`


def network(seed: int = 0) -> nn.Sequential:
    """4 inputs, 5 hidden units, 3 classes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def inputs(count: int = 12, width: int = 4) -> Tensor:
    """Standard normal inputs."""
    return torch.randn(count, width, generator=torch.Generator().manual_seed(1))


def labels(count: int = 12) -> Tensor:
    """0, 1, 2, 0, 1, 2, ..."""
    return torch.arange(count) % 3


def data() -> tuple[Tensor, Tensor]:
    return inputs(), labels()


def spoiled(tensor: Tensor, value: float, place: int = 0) -> Tensor:
    """The tensor with one of its numbers replaced."""
    out = tensor.clone()
    out.view(-1)[place] = value
    return out


def of(model: Any = None, loss: Any = "cross_entropy", batch: Any = "usual", params: Any = "*", **settings: Any) -> Any:
    """`Problem.of` where everything that is not given is in order."""
    return hs.Problem.of(
        network() if model is None else model,
        loss,
        data() if isinstance(batch, str) and batch == "usual" else batch,
        params,
        **settings,
    )


@cache
def problem() -> Any:
    """A problem in order."""
    return of()


@cache
def hessian() -> Any:
    """Its Hessian."""
    return hs.Hessian(problem())


@cache
def large() -> Any:
    """A diagonal matrix that is too large to be solved at once: 300 rows."""
    return operators.Dense(torch.diag(torch.linspace(0.1, 3.0, 300, dtype=torch.float64)))


def function_loss(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    """A loss in order that comes as one number."""
    x, y = batch
    return nn.functional.cross_entropy(model(x), y, reduction="sum"), len(y)
