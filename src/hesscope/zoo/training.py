"""The one training loop of presets and experiments: steps of an optimiser on batches drawn from named randomness."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

from ..rng import Rng

B = TypeVar("B")


def descend(
    optimizer: torch.optim.Optimizer,
    batches: Iterable[B],
    loss: Callable[[B], Tensor],
    *,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
    watch: Callable[[int], None] | None = None,
) -> None:
    """One step down the gradient of `loss(batch)` for each batch; `watch(t)` sees the model after t steps, from 0 on."""
    step = 0
    for batch in batches:
        if watch is not None:
            watch(step)
        optimizer.zero_grad()
        torch.autograd.backward(loss(batch))
        optimizer.step()
        if schedule is not None:
            schedule.step()
        step += 1
    if watch is not None:
        watch(step)


def drawn_batches(count: int, size: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Indices of `size` of `count` examples, drawn with replacement, `steps` times."""
    return (torch.randint(0, count, (size,), generator=generator) for _ in range(steps))


def shuffled_batches(count: int, size: int, rng: Rng) -> tuple[Tensor, ...]:
    """Indices of every example once, in an order that `rng` names: the batches of one epoch."""
    return tuple(torch.split(torch.randperm(count, generator=rng.torch()), size))
