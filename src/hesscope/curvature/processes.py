"""What the processes of a data-parallel problem must agree on."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import refuse
from .distributed import together
from .losses.parsing import SeparableLoss
from .models.evaluation import Evaluation, value_of
from .models.own_loss import OwnLoss
from .models.state import digest
from .proofs.independence import rounding_of

if TYPE_CHECKING:
    from .problem import Problem

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


def _refuse_different_functions(problem: Problem) -> None:
    """Every process must compute the same loss of the same few examples: another activation or attribute is in no tensor."""
    few = problem._few
    try:
        value = None if not few else value_of(problem.evaluate(few[0], problem.parameters))
    except Exception:  # examples of another process that cannot be run alone here; what is wrong shows elsewhere
        value = None
    mean = problem.loss.mean if isinstance(problem.loss, SeparableLoss) else None
    found = from_every((value, mean, problem.space.names))
    values = [one for one, _, _ in found if one is not None and isfinite(one)]  # what is not is refused elsewhere
    near = not values or max(values) - min(values) <= rounding_of(problem.dtype) * max(map(abs, values))
    if not near or len({(mean, names) for _, mean, names in found}) > 1:
        refuse(
            "every process must have the same model, loss and parameters",
            f"losses of {', '.join(f'{one:.6g}' for one in values)} for the same examples, or other settings",
            "Make the model, the loss and the arguments of Problem.of alike everywhere: activations, eps, reductions, params.",
        )


def agree_on_loss(problem: Problem) -> None:
    """A process without data learns from the others what kind of function the loss is, and all must have the same."""
    _learn_the_kind(problem._evaluation)
    _refuse_different_functions(problem)


def _learn_the_kind(evaluation: Evaluation) -> None:
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
