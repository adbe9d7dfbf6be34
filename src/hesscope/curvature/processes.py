"""What the processes of a data-parallel problem must agree on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import refuse
from .distributed import together
from .losses.parsing import SeparableLoss
from .models.evaluation import Evaluation
from .models.own_loss import OwnLoss
from .models.state import digest

_T = TypeVar("_T")


def refuse_different_models(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Every process must hold the same parameters and buffers: sums of different Hessians are of no loss at all."""
    own = torch.tensor([digest(state)], dtype=torch.int64, device=device)
    least, most = own.clone(), own.clone()
    with together():
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
    if int(least) != int(most):
        refuse(
            "every process must hold the same model",
            "other parameters or buffers in another process",
            "Load the same checkpoint everywhere, or wrap the model in DistributedDataParallel, which synchronises it.",
        )


def any_process(flag: bool, device: torch.device) -> bool:
    """Whether it holds in some process."""
    found = torch.tensor([int(flag)], device=device)
    with together():
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return bool(found)


def from_every(value: _T) -> list[_T]:
    """What every process has, by rank, in all of them."""
    parts: list[Any] = [None] * dist.get_world_size()
    with together():
        dist.all_gather_object(parts, value)
    return parts


def same_everywhere(value: Any) -> Any:
    """The value of the first process that has one, in every process."""
    have = from_every(bool(value))
    if not any(have):
        return None
    box = [value]
    with together():
        dist.broadcast_object_list(box, src=have.index(True))
    return box[0]


def agree_on_loss(evaluation: Evaluation) -> None:
    """A process without data learns from the others what kind of function the loss is."""
    loss = evaluation.loss
    own = (isinstance(loss, SeparableLoss), getattr(loss, "reduction", None))
    found = same_everywhere(own if evaluation.settled else None)
    if evaluation.settled or found is None:
        return
    if found[0] and not isinstance(loss, SeparableLoss):
        evaluation.loss = SeparableLoss(nn.CrossEntropyLoss() if isinstance(loss, OwnLoss) else loss)
    if isinstance(evaluation.loss, SeparableLoss):
        evaluation.loss.reduction = found[1]
    evaluation.settled = True
