"""The loss that a model computes itself, as Hugging Face models do, found again as a loss of its outputs.

Gauss-Newton and Fisher matrices need outputs and loss apart. A reading says how: it is taken where it has the value of the
model's own loss and its gradient in the logits, on the first examples. Where none has, the loss is used whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import HesscopeError, refuse
from ..data import examples_in, first_examples
from ..losses.parsing import SeparableLoss
from .inputs import (
    ANSWERS,
    AVERAGED_OVER,
    field,
    need_own_loss,
    run_with_answers,
    run_without_answers,
    takes_labels,
    with_graph,
)
from .padded_examples import odd_examples

if TYPE_CHECKING:
    from ..problem import Problem

Pair = tuple[Tensor, Tensor]
_VALUE = {torch.float64: 1e-10, torch.float32: 3e-6}  # CE of many tokens in float32, added in another order
_SLOPE = {torch.float64: 1e-8, torch.float32: 1e-4}
_COARSE = 3e-2
FIRST = 2  # examples that a reading is found on
_LOGITS = ("logits", "start_logits", "end_logits")


@dataclass(frozen=True)
class LossReading:
    """A loss of torch's, and how its outputs and targets come from what a model returns and a batch."""

    name: str
    loss: nn.Module
    pair: Callable[[Any, Mapping[str, Any]], Pair | None]


def readings(model: nn.Module) -> Iterator[LossReading]:
    """What models of transformers compute, the most usual first."""
    yield LossReading("next token", nn.CrossEntropyLoss(), _next_token)
    yield LossReading("classes", nn.CrossEntropyLoss(), _classes)
    yield LossReading("numbers", nn.MSELoss(), _numbers)
    yield LossReading("yes or no", nn.BCEWithLogitsLoss(), _same_shape)
    ignored = getattr(getattr(model, "config", None), "semantic_loss_ignore_index", 255)
    yield LossReading("pixels", nn.CrossEntropyLoss(ignore_index=ignored), _pixels)
    yield LossReading("start and end", nn.CrossEntropyLoss(), _start_and_end)


def _next_token(outputs: Any, batch: Mapping[str, Any]) -> Pair | None:
    z, t = field(outputs, "logits"), _labels(batch)
    if (
        z is None
        or t is None
        or not _are_classes(z, t)
        or z.ndim != 3
        or z.shape[1] < 2
        or tuple(t.shape) != tuple(z.shape[:2])
    ):
        return None
    return z[:, :-1].flatten(0, 1), t[:, 1:].flatten()


def _classes(outputs: Any, batch: Mapping[str, Any]) -> Pair | None:
    z, t = field(outputs, "logits"), _labels(batch)
    return (z.flatten(0, -2), t.flatten()) if z is not None and t is not None and _are_classes(z, t) else None


def _labels(batch: Mapping[str, Any]) -> Tensor | None:
    found = batch.get("labels")
    return found if isinstance(found, Tensor) else None


def _are_classes(z: Tensor, t: Tensor) -> bool:
    whole = not t.is_floating_point() and t.dtype != torch.bool
    return whole and z.ndim > 1 and t.numel() * z.shape[-1] == z.numel()


def _numbers(outputs: Any, batch: Mapping[str, Any]) -> Pair | None:
    z, t = field(outputs, "logits"), batch.get("labels")
    if z is None or not isinstance(t, Tensor) or z.numel() != t.numel() or not t.is_floating_point():
        return None
    return z.reshape(len(z), -1), t.reshape(len(z), -1).to(z)


def _same_shape(outputs: Any, batch: Mapping[str, Any]) -> Pair | None:
    z, t = field(outputs, "logits"), batch.get("labels")
    return (z, t) if z is not None and isinstance(t, Tensor) and z.shape == t.shape else None


def _pixels(outputs: Any, batch: Mapping[str, Any]) -> Pair | None:
    z, t = field(outputs, "logits"), batch.get("labels")
    if z is None or not isinstance(t, Tensor) or z.ndim != 4 or t.ndim != 3 or t.is_floating_point():
        return None
    z = F.interpolate(z, size=t.shape[-2:], mode="bilinear", align_corners=False)
    return z.movedim(1, -1).flatten(0, -2), t.flatten()


def _start_and_end(outputs: Any, batch: Mapping[str, Any]) -> Pair | None:
    scores = [field(outputs, name) for name in ("start_logits", "end_logits")]
    places = [batch.get(name) for name in ("start_positions", "end_positions")]
    if any(z is None for z in scores) or not all(isinstance(t, Tensor) and t.ndim == 1 for t in places):
        return None
    targets = torch.stack(places, 1).flatten().clamp_min(0)  # type: ignore[arg-type]
    inside = targets < scores[0].shape[-1]  # type: ignore[union-attr]
    return torch.stack(scores, 1).flatten(0, 1), targets.where(inside, -100)  # type: ignore[arg-type]


class ReadForward:
    """Runs a model on a batch, without its labels where they do not matter to it, and reads outputs and targets."""

    def __init__(self, reading: LossReading, with_answers: bool) -> None:
        self.reading, self.with_answers = reading, with_answers
        self.confirming = self.differs = False

    def __call__(self, model: nn.Module, batch: Any) -> Pair:
        _need_dict(batch)
        if self.confirming:
            self.differs = not self._is_confirmed(model, batch)
        outputs = (run_with_answers if self.with_answers else run_without_answers)(model, batch)
        pair = self.reading.pair(outputs, batch)
        if pair is None:
            shapes = {name: tuple(value.shape) for name, value in batch.items() if isinstance(value, Tensor)}
            refuse(
                f"outputs and labels must fit ({self.reading.name}) in every batch",
                f"a batch of {shapes}",
                "Bring the batches to one form in the collator, or pass loss= and forward=.",
            )
        return pair

    def _is_confirmed(self, model: nn.Module, few: Mapping[str, Any]) -> bool:
        """Whether the model's own loss of these is what was read on the first examples, if it is a number at all."""
        with with_graph(model), torch.enable_grad():
            outputs = run_with_answers(model, few)
            own, given = need_own_loss(outputs, few), _logits(outputs)
            slopes = _slopes(own, given)
            finite = bool(torch.isfinite(own.detach()))
            return not finite or slopes is None or _fits(self.reading, few, own, given, slopes)


class OwnLoss:
    """Stands for the loss of a model until the first batch tells what it is."""

    def settle(self, model: nn.Module, batch: Any) -> tuple[SeparableLoss | Callable[..., Any], Any]:
        """The loss, and the forward that goes with it."""
        _need_dict(batch)
        if not takes_labels(model):
            refuse(
                "a loss must be given where the model has none of its own",
                f"{type(model).__name__}, which takes no labels",
                "Pass loss='cross_entropy', another name, a torch loss or a function.",
            )
        with with_graph(model):
            few, outputs, own = _own(model, first_examples(batch, FIRST))
            reading = read(model, few, outputs, own)
        if reading is None:
            return _whole, None
        return SeparableLoss(reading.loss), ReadForward(reading, not _same_without_answers(model, few, outputs))


def _own(model: nn.Module, few: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any, Tensor]:
    """A batch, what the model makes of it and its loss; with other labels where these tell nothing of it."""
    failure: Exception | None = None
    try:
        outputs = run_with_answers(model, few)
        own = need_own_loss(outputs, few)
        if bool(torch.isfinite(own.detach())):
            return few, outputs, own
    except HesscopeError:
        raise
    except Exception as error:
        failure = error
    other = _other_labels(model, few)
    if other is not None:
        try:
            outputs = run_with_answers(model, other)
            return other, outputs, need_own_loss(outputs, other)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return few, outputs, own


def _other_labels(model: nn.Module, few: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The classes in turn, in the place of labels that are all ignored or beyond the outputs: those are for the loss to
    count or refuse, and do not say what the loss is."""
    labels = few.get("labels")
    if not isinstance(labels, Tensor) or labels.is_floating_point():
        return None
    config = getattr(model, "config", None)
    classes = getattr(config, "num_labels", None) if labels.ndim == 1 else getattr(config, "vocab_size", None)
    places = torch.arange(labels.numel(), device=labels.device).reshape(labels.shape)
    return {**few, "labels": (places % min(classes or 2, 7)).to(labels.dtype)}


def read(model: nn.Module, batch: Mapping[str, Any], outputs: Any, own: Tensor) -> LossReading | None:
    """The reading whose value and gradient in the logits are those of the model's own loss."""
    given = _logits(outputs)
    slopes = _slopes(own, given)
    if slopes is None:
        return None
    return next((reading for reading in readings(model) if _fits(reading, batch, own, given, slopes)), None)


def _logits(outputs: Any) -> dict[str, Tensor]:
    return {name: z for name in _LOGITS if (z := field(outputs, name)) is not None}


def _fits(
    reading: LossReading, batch: Mapping[str, Any], own: Tensor, given: Mapping[str, Tensor], slopes: list[Tensor]
) -> bool:
    leaves = {name: z.detach().clone().requires_grad_() for name, z in given.items()}
    pair = reading.pair(leaves, batch)
    if pair is None:
        return False
    try:
        value = reading.loss(*pair)
    except (RuntimeError, IndexError, ValueError):
        return False
    mine = _slopes(value, leaves)
    return mine is not None and _same(own, value, slopes, mine)


def _slopes(value: Tensor, logits: Mapping[str, Tensor]) -> list[Tensor] | None:
    if not logits or not value.requires_grad or not all(z.requires_grad for z in logits.values()):
        return None
    found = torch.autograd.grad(value, list(logits.values()), retain_graph=True, allow_unused=True)
    return None if any(g is None for g in found) else list(found)


def _same(own: Tensor, value: Tensor, slopes: list[Tensor], mine: list[Tensor]) -> bool:
    types = {own.dtype, *(g.dtype for g in slopes)}
    exact, loose = (max(table.get(dtype, _COARSE) for dtype in types) for table in (_VALUE, _SLOPE))
    if not torch.isclose(own.detach().double(), value.detach().double(), rtol=exact, atol=0):
        return False
    size = max(float(g.detach().abs().max()) for g in slopes)
    return all(float((a.double() - b.double()).abs().max()) <= loose * size for a, b in zip(slopes, mine, strict=True))


def _same_without_answers(model: nn.Module, few: Mapping[str, Any], outputs: Any) -> bool:
    try:
        again = run_without_answers(model, few)
    except Exception:
        return False
    for name in _LOGITS:
        a, b = field(outputs, name), field(again, name)
        if a is not None and (b is None or a.shape != b.shape or not torch.equal(a, b)):
            return False
    return True


def _whole(model: nn.Module, batch: Any) -> tuple[Tensor, float]:
    """The model's own loss of a batch times its examples: a sum, if the loss is a mean over examples."""
    _need_dict(batch)
    examples = float(examples_in(batch) or 1)
    return need_own_loss(run_with_answers(model, batch), batch) * examples, examples


def is_whole(loss: Any) -> bool:
    """Whether a loss is a model's own that is no known function of its outputs."""
    return loss is _whole


def check_own_loss(problem: Problem, has_data: bool) -> None:
    """Refuse batches that nothing says how to average, and a number of items that is not theirs."""
    if not problem.has_outputs and has_data:
        _ = problem.divisible  # refuses a mean in the place of a sum
    if is_whole(problem.loss) and not problem.divisible and sum(1 for _ in problem.batches) > 1:
        refuse(
            "the model's own loss must be a mean over examples where there is more than one batch",
            "one that is not the mean of its parts, and that is none of its logits alone",
            "Pass one batch, or loss=lambda model, batch: (sum, count), which says how batches are averaged.",
        )
    _confirm_on_odd_examples(problem)
    named = [batch[AVERAGED_OVER] for batch in problem.batches if isinstance(batch, Mapping) and AVERAGED_OVER in batch]
    if named and any(float(items) != problem.totals[1] for items in named):
        refuse(
            f"{AVERAGED_OVER} must be what the loss is averaged over, all batches together: {problem.totals[1]:g}",
            f"{float(named[0]):g}",
            "Leave it out: the loss is the sum over everything that has a label, divided by their number.",
        )


def _confirm_on_odd_examples(problem: Problem) -> None:
    """A loss that was read from the first examples is that of padded ones, and of answers that do not count, as well."""
    forward = problem._evaluation.split
    if not isinstance(forward, ReadForward):
        return
    forward.confirming = True
    try:
        for number, place, few in odd_examples(problem.batches, FIRST):
            # What else is wrong with these examples is said where all data is evaluated.
            with suppress(HesscopeError, RuntimeError, IndexError, ValueError, TypeError):
                problem.evaluate(few, problem.parameters)
            if forward.differs:
                refuse(
                    f"the model's own loss ({forward.reading.name}) must be the same function of its logits in all examples",
                    f"another one in batch {number}, example {place}",
                    "Give what shall not count (padding) the label -100, or pass loss=lambda model, batch: (sum, count).",
                )
    finally:
        forward.confirming = False


def _need_dict(batch: Any) -> None:
    if not isinstance(batch, Mapping):
        refuse(
            "a loss must be given where batches have no names",
            "no data" if batch is None else type(batch).__name__,
            f"Pass loss=..., or dict batches with {ANSWERS[0]!r} for a model that has a loss of its own.",
        )
