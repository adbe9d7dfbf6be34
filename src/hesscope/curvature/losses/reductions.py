"""Is a loss a sum or a mean? Not by its attributes: by comparing it on a batch with itself on parts of the batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...errors import refuse
from ...rng import Rng
from .elementwise import AutogradLoss

Function = Callable[[Any, Any], Any]
ReductionKind = Literal["sum", "counted", "examples", "per example"]
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True)
class Reduction:
    """How a loss of (outputs, targets) combines over batches.

    "sum": values add up. "counted": the module sums with reduction="sum", and its mean divides by what the two tell.
    "examples": a mean over examples. "per example": one value each. `coupled`: a mean by name alone, since over a batch
    it is neither the sum nor the mean of its parts: examples see each other in it.
    """

    kind: ReductionKind
    mean: bool
    coupled: bool = False

    def terms(self, loss: Function, outputs: Tensor, targets: Any) -> AutogradLoss:
        """The loss of one batch as a sum over it, and what a mean divides by."""
        shape = outputs.shape
        examples = shape[0] if outputs.ndim else 1
        f = outputs.reshape(examples, -1)
        loss = in_type_of(outputs, loss)
        summed = _summed(loss) if self.kind == "counted" else loss

        def total(z: Tensor) -> Tensor:
            value: Tensor = summed(z.reshape(shape), targets)
            return value.sum() * examples if self.kind == "examples" else value.sum()

        count = float(examples)
        if self.kind == "counted":
            count = _count(loss, outputs.detach(), targets)
        return AutogradLoss(f, count, total)


def find_reduction(loss: Function, outputs: Tensor, targets: Any, named: str | None) -> tuple[Reduction, bool]:
    """The reduction of a loss, and whether this batch proves it; refuses what contradicts the user."""
    module = isinstance(loss, nn.Module)
    claimed = named or (getattr(loss, "reduction", None) if module else None)
    wide, z, t = _in_float64(loss, outputs.detach(), targets)
    value = wide(z, t)
    if not isinstance(value, Tensor):
        refuse("loss(outputs, targets) must return a tensor", f"{type(value).__name__}", _REMEDY)
    examples = z.shape[0] if z.ndim else 1
    if value.ndim and value.numel() == len(value) == examples:
        if claimed == "none":
            refuse("a loss module must have reduction 'mean' or 'sum'", f"{claimed!r}", "Or name it: reduction='mean'.")
        return Reduction("per example", claimed != "sum"), True
    if value.numel() != 1:
        refuse(
            "a loss must be one number, or one for each example",
            f"shape {tuple(value.shape)} for {examples} examples",
            "Average or sum over the other axes.",
        )
    if claimed not in ("mean", "sum", "batchmean") and not module:
        refuse("the reduction of a loss that is one number must be named", "none", "Pass reduction='mean' or 'sum'.")
    return _of_number(wide, z, t, claimed, named)


_REMEDY = "Return one value for each example, or one number with reduction='mean' or 'sum' named."


def _of_number(loss: Function, z: Tensor, t: Any, claimed: str | None, named: str | None) -> tuple[Reduction, bool]:
    parts = _parts(z, t)
    if parts is None:
        return _unproven(claimed), False
    whole, pieces = parts
    values = [_number(loss(*pair)) for pair in (whole, *pieces)]
    sizes = [len(pair[0]) for pair in (whole, *pieces)]
    digits = _TOLERANCE.get(z.dtype, 3e-2)
    is_sum = _adds_up(values, digits)
    is_mean = _adds_up([v * n for v, n in zip(values, sizes, strict=True)], digits)
    if (is_sum and is_mean) or not all(map(_finite, values)):  # zero, or nothing that counts: this batch says nothing
        return Reduction("counted", True) if _summed(loss) is not None else _unproven(claimed), False
    if is_sum:
        if named == "mean":
            refuse("a loss named a mean must be one", "a sum: over a batch it is the sum over its parts", _NAMED)
        return Reduction("sum", False), True
    if _is_counted(loss, whole, pieces, digits):
        if named == "sum":
            refuse("a loss named a sum must be one", "a mean: over a batch it is the mean of its parts", _NAMED)
        return Reduction("counted", True), True
    if is_mean:
        if named == "sum":
            refuse("a loss named a sum must be one", "a mean: over a batch it is the mean of its parts", _NAMED)
        return Reduction("examples", True), True
    by_name = _unproven(claimed)  # examples see each other: the batches are the user's
    return Reduction(by_name.kind, by_name.mean, coupled=by_name.mean), True


_NAMED = "Name the reduction it has."


def _unproven(claimed: str | None) -> Reduction:
    if claimed not in ("mean", "sum", "batchmean"):
        refuse(
            "a loss must be a sum or a mean over the examples of a batch",
            "one that is neither",
            "Name what its batches are combined by: reduction='mean' or reduction='sum'.",
        )
    return Reduction("sum", False) if claimed == "sum" else Reduction("examples", True)


def _parts(z: Tensor, t: Any) -> tuple[tuple[Tensor, Any], list[tuple[Tensor, Any]]] | None:
    """The batch twice over, shuffled, and two uneven parts of it (so that a single example has parts, too)."""
    if not isinstance(t, Tensor) or not z.ndim or not t.ndim or len(z) != len(t) or not len(z):
        return None
    order = torch.randperm(len(z), generator=Rng(0).child("reduction").torch(), device="cpu").to(z.device)
    z, t = torch.cat([z[order], z]), torch.cat([t[order], t])
    cut = max(1, len(z) // 3)
    return (z, t), [(z[:cut], t[:cut]), (z[cut:], t[cut:])]


def _adds_up(values: list[float], digits: float) -> bool:
    whole, parts = values[0], values[1:]
    return abs(whole - sum(parts)) <= digits * (abs(whole) + sum(map(abs, parts)))


def _is_counted(loss: Function, whole: Any, pieces: list[Any], digits: float) -> bool:
    """Whether reduction="sum" of the same module adds up, and the mean is that sum over a count of the targets."""
    summed = _summed(loss)
    if summed is None:
        return False
    sums = [_number(summed(*pair)) for pair in (whole, *pieces)]
    means = [_number(loss(*pair)) for pair in (whole, *pieces)]
    if not _adds_up(sums, digits) or not all(means) or not all(sums):
        return False
    counts = [s / m for s, m in zip(sums, means, strict=True)]
    moved = (whole[0] * 0.7, whole[1])
    try:
        other = _number(summed(*moved)) / _number(loss(*moved))
    except (ArithmeticError, RuntimeError, ValueError):
        return False
    return _adds_up(counts, digits) and abs(other - counts[0]) <= digits * abs(counts[0]) and counts[0] > 0


def _summed(loss: Function) -> Any:
    if not isinstance(loss, nn.Module) or getattr(loss, "reduction", None) not in ("mean", "batchmean"):
        return None
    other = copy.copy(loss)
    try:
        other.reduction = "sum"  # type: ignore[assignment]
    except AttributeError:
        return None
    return other


def _count(loss: Function, outputs: Tensor, targets: Any) -> float:
    """What the mean divides by: its ratio to the sum, which no output changes."""
    wide, z, t = _in_float64(loss, outputs, targets)
    here = _number(wide(z, t))
    for scale in (1.0, 0.7, 1.3, 0.0, -1.0):  # a loss may be zero here, and not there
        try:
            total, mean = _number(_summed(wide)(z * scale, t)), _number(wide(z * scale, t))
        except Exception:
            continue  # outside the domain of the loss
        if total and mean and _finite(mean):
            count = total / mean
            return float(round(count)) if abs(count - round(count)) < 1e-6 * count else count
    return float(len(z)) if _finite(here) else 0.0


def _number(value: Tensor) -> float:
    return float(value.detach())


def _finite(value: float) -> bool:
    return abs(value) < float("inf")


def in_type_of(outputs: Tensor, loss: Function) -> Function:
    """The loss with its weights in the type of the outputs, as of a problem that was cast."""
    if not isinstance(loss, nn.Module) or any(True for _ in loss.parameters()):
        return loss
    if all(b.dtype == outputs.dtype for b in loss.buffers() if b.is_floating_point()):
        return loss
    return copy.deepcopy(loss).to(outputs.dtype)


def _in_float64(loss: Function, z: Tensor, t: Any) -> tuple[Function, Tensor, Any]:
    """The loss and its arguments in float64, where it runs in it."""
    wide_t = t.double() if isinstance(t, Tensor) and t.is_floating_point() else t
    try:
        wide = copy.deepcopy(loss).double() if isinstance(loss, nn.Module) else loss
        if isinstance(wide(z.double(), wide_t), Tensor):
            return wide, z.double(), wide_t
    except Exception:
        pass
    return loss, z, t
