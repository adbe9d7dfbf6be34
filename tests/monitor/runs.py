"""Small trainings that monitors are tried on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hesscope as hs

X = torch.randn(96, 6, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 3, (96,), generator=torch.Generator().manual_seed(2))
HELD_OUT = (X[64:], Y[64:])


class Ticks:
    """A clock that a test sets; every look takes `look` seconds."""

    def __init__(self, look: float = 0.0) -> None:
        self.now, self.look = 0.0, look

    def __call__(self) -> float:
        self.now += self.look
        return self.now


def network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def monitor_of(model: nn.Module, folder: Path, **settings: Any) -> hs.Monitor:
    chosen = {"budget": None, "out": folder / "run.jsonl", "on_error": "raise", "clock": Ticks(), **settings}
    return hs.Monitor(model, chosen.pop("loss", "cross_entropy"), chosen.pop("data", HELD_OUT), **chosen)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: range | int,
    monitor: hs.Monitor | None = None,
    context: Callable[[], Any] | None = None,
    run: Callable[[Tensor], Tensor] | None = None,
) -> list[hs.Reading]:
    """Plain training on batches that follow from the step; the readings that were taken after each step."""
    found = []
    for step in range(steps) if isinstance(steps, int) else steps:
        index = torch.arange(8) * 7 % 64 + step % 8
        index = index % 64
        optimizer.zero_grad()
        if context is None:
            nn.functional.cross_entropy((run or model)(X[index]), Y[index]).backward()
        else:
            with context():
                value = nn.functional.cross_entropy((run or model)(X[index]), Y[index])
            value.backward()
        optimizer.step()
        if monitor is not None:
            reading = monitor.step(step, optimizer)
            if reading is not None:
                found.append(reading)
    return found
