"""Full-batch runs that can be kept and continued: three networks, four optimisers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, optim

from ...curvature import Problem
from ...plots.style import CYCLE, THEORY
from ...rng import Rng
from ...zoo.data import load
from ...zoo.gpt import SmallGPT
from ...zoo.models import fully_connected, initialised_by, lenet5
from ...zoo.presets import shakespeare

NETWORKS = ("mlp", "lenet5", "gpt")
INKS = tuple(ink for ink in CYCLE if ink != THEORY)  # one per optimiser; the edge keeps the colour of theory
OPTIMIZERS: dict[str, Callable[[Any, float], optim.Optimizer]] = {
    "gd": lambda p, rate: optim.SGD(p, lr=rate),
    "momentum": lambda p, rate: optim.SGD(p, lr=rate, momentum=0.9),
    "rmsprop": lambda p, rate: optim.RMSprop(p, lr=rate),
    "adam": lambda p, rate: optim.Adam(p, lr=rate),
}
# Rates at which runs sharpen until they come near their edge, found by trying a few.
RATES = {
    ("mlp", "gd"): 0.3,
    ("mlp", "momentum"): 0.1,
    ("mlp", "rmsprop"): 1e-3,
    ("mlp", "adam"): 3e-3,
    ("lenet5", "gd"): 0.05,
    ("lenet5", "momentum"): 5e-3,
    ("lenet5", "rmsprop"): 2e-4,
    ("lenet5", "adam"): 5e-4,
    ("gpt", "gd"): 0.3,
    ("gpt", "momentum"): 0.05,
    ("gpt", "rmsprop"): 1e-3,
    ("gpt", "adam"): 5e-3,
}


@dataclass(frozen=True)
class Task:
    """A network to be trained on all of its data at every step."""

    name: str
    make: Callable[[], nn.Module]
    data: tuple[Tensor, Tensor]
    synthetic: bool


def task_of(name: str, examples: int, folder: str | None, rng: Rng) -> Task:
    """The network of this name, on so many images or windows of text."""
    if name == "mlp":
        digits = load("digits", count=examples)
        return Task(name, lambda: fully_connected(32, 2, 64, rng=rng), (digits.x, digits.y), False)
    if name == "lenet5":
        images = load("cifar10", folder=folder, count=examples)
        return Task(name, lambda: lenet5(rng=rng), (images.x, images.y), images.synthetic)
    letters, synthetic = shakespeare(folder)
    known = sorted(set(letters))
    tokens = torch.tensor([known.index(letter) for letter in letters])
    length = 32
    x = tokens[: examples * length].view(-1, length)
    y = tokens[1 : 1 + x.numel()].view(-1, length)

    def make() -> nn.Module:
        with initialised_by(rng):
            return SmallGPT(len(known), 32, 4, 2, length)

    return Task(name, make, (x, y), synthetic)


class FullBatchRun:
    """A model and its optimiser, step by step on all data."""

    def __init__(self, task: Task, optimizer: str, rate: float) -> None:
        self.task, self.optimizer_name, self.rate = task, optimizer, rate
        self.model = task.make()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters(), rate)
        self.losses: list[float] = []

    def loss(self) -> Tensor:
        x, y = self.task.data
        return nn.functional.cross_entropy(self.model(x).flatten(0, -2), y.flatten())

    def step(self) -> float:
        """One step; the loss before it."""
        self.optimizer.zero_grad()
        value = self.loss()
        torch.autograd.backward(value)
        self.optimizer.step()
        self.losses.append(float(value.detach()))
        return self.losses[-1]

    def problem(self) -> Problem:
        return Problem.of(self.model, "cross_entropy", self.task.data)

    def copy(self) -> FullBatchRun:
        """The same run at this moment, to be continued on its own."""
        made = FullBatchRun(self.task, self.optimizer_name, self.rate)
        made.model.load_state_dict(self.model.state_dict())
        made.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        made.losses = list(self.losses)
        return made

    def continued(self, rate: float, steps: int) -> list[float]:
        """The losses of so many steps from here at another rate, on a copy."""
        run = self.copy()
        for group in run.optimizer.param_groups:
            group["lr"] = rate
        losses = []
        for _ in range(steps):
            losses.append(run.step())
            if not losses[-1] < 1e6:
                return losses
        losses.append(float(run.loss().detach()))
        return losses[1:]


def runs_of(config: Any) -> list[FullBatchRun]:
    """Every network of a config under every optimiser, not trained yet."""
    found = []
    for network, examples in zip(config.networks, config.examples, strict=True):
        task = task_of(network, examples, config.data_dir, Rng(config.seed).child(network))
        found += [FullBatchRun(task, optimizer, RATES[network, optimizer]) for optimizer in config.optimizers]
    return found


def synthetic_of(runs: list[FullBatchRun]) -> tuple[str, ...]:
    """The networks whose data are a stand-in."""
    return tuple(dict.fromkeys(run.task.name for run in runs if run.task.synthetic))


def at_checkpoints(
    runs: list[FullBatchRun], steps: tuple[int, ...], measure: Callable[[FullBatchRun], dict[str, Any]]
) -> list[dict[str, Any]]:
    """What `measure` says at these steps of every run, and of which run it is."""
    return [
        {"network": run.task.name, "optimizer": run.optimizer_name, "step": step, **measure(run)}
        for run in runs
        for step in checkpoints(run, steps)
    ]


def checkpoints(run: FullBatchRun, steps: tuple[int, ...]) -> Iterator[int]:
    """The run at each of these steps, trained in place."""
    done = 0
    for step in steps:
        while done < step:
            run.step()
            done += 1
        yield step
