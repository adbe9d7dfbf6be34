"""From a torch loss, a name or a function to terms with the weights the user trains with."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import HesscopeError, refuse
from .base import OutputLoss
from .closed_forms import SquaredError, closed_form_of
from .layout import class_second
from .reductions import Reduction, find_reduction

NAMES: dict[str, Callable[[], nn.Module]] = {
    "cross_entropy": nn.CrossEntropyLoss,
    "mse": nn.MSELoss,
    "squared_error": SquaredError,
    "huber": nn.HuberLoss,
    "smooth_l1": nn.SmoothL1Loss,
    "bce": nn.BCEWithLogitsLoss,
}
_FUNCTIONS: dict[Any, str] = {
    F.cross_entropy: "cross_entropy",
    F.mse_loss: "mse",
    F.huber_loss: "huber",
    F.smooth_l1_loss: "smooth_l1",
    F.binary_cross_entropy_with_logits: "bce",
}
_ROUNDING = 1e-14  # of float64, with some fifty operations; of the largest output, of which exponentials have it
_AT_ONCE = 1 << 21  # outputs that both losses are compared on, in float64 and with some ten tensors of their size


class SeparableLoss:
    """A loss of (outputs, targets). Written out where it is exactly one of torch's and agrees with it on the user's own
    outputs; by autograd otherwise, with its reduction found on the data."""

    def __init__(self, loss: Callable[..., Any], named: str | None = None) -> None:
        self.module: Any = loss
        self._named = named
        self._closed_form = closed_form_of(loss) if named is None else None
        self._agrees = False
        self.reduction: Reduction | None = None
        if self._closed_form is not None and loss.reduction not in ("mean", "sum"):  # type: ignore[attr-defined]
            refuse(
                "a loss module must have reduction 'mean' or 'sum'",
                f"{loss.reduction!r}",  # type: ignore[attr-defined]
                "Or name it: reduction='mean'.",
            )

    @property
    def coupled(self) -> bool:
        """Whether a batch's value is no sum or mean over examples, so that there are several means over batches."""
        return self.reduction is not None and self.reduction.coupled

    @property
    def written_out(self) -> bool:
        """Whether its derivatives are formulas of ours; known once there were outputs."""
        return self._closed_form is not None

    @property
    def named(self) -> bool:
        """Whether the user said how batches combine."""
        return self._named is not None

    @property
    def mean(self) -> bool:
        """Whether sums over batches are divided by what the loss counts."""
        if self._closed_form is not None:
            return bool(self.module.reduction == "mean")
        return self.reduction is None or self.reduction.mean

    def rows(self, outputs: Tensor, targets: Tensor) -> OutputLoss:
        """The terms of one batch."""
        if not isinstance(outputs, Tensor) or not outputs.is_floating_point():
            got = outputs.dtype if isinstance(outputs, Tensor) else type(outputs).__name__
            refuse(
                "the model must return a floating-point tensor",
                f"{got}",
                "Pass forward=lambda model, batch: (outputs, targets).",
            )
        if self._closed_form is not None and not isinstance(targets, Tensor):
            refuse("targets must be a tensor", f"{type(targets).__name__}", "Use torch.as_tensor(targets).")
        if self._closed_form is not None and targets.is_complex():
            refuse(
                "targets must be real", f"{targets.dtype}", "Compare real and imaginary parts as outputs of their own."
            )
        if self._closed_form is not None and not self._agrees:
            self._compare(outputs, targets)
        if self._closed_form is not None:
            return self._closed_form(outputs, targets)
        found = self.reduction
        if found is None:
            found, proven = find_reduction(self.module, outputs, targets, self._named)
            self.reduction = found if proven else None
        return found.terms(self.module, outputs, targets)

    def _compare(self, outputs: Tensor, targets: Tensor) -> None:
        """The written-out loss must have the value and the gradient of the user's own; else autograd takes its place."""
        outputs, wide = outputs.detach(), targets.double() if targets.is_floating_point() else targets
        few = _leading(outputs, wide)
        same = None if few is None else self._same(*few)
        same = self._same(outputs, wide) if same is None else same
        if same is None:
            return  # nothing counts here: another batch decides
        self._agrees = True
        if not same:
            self._closed_form = None

    def _same(self, outputs: Tensor, targets: Tensor) -> bool | None:
        """Whether both are the same here; None where nothing counts, or the user's own cannot be had.

        Where outputs are saturated, torch's own loses its digits: 1 - p is then a difference of numbers near one. There the
        two need agree to that rounding only, and in full where the same outputs are drawn together.
        """
        here = self._both(outputs, targets)
        if here is None:
            return None
        if all(_close(a, b) for a, b in here):
            return True
        largest = 1 + float(outputs.masked_fill(~outputs.isfinite(), 0.0).abs().max())
        drawn = self._both(outputs.double() / largest, targets)
        if drawn is None:
            return False
        rounding = _ROUNDING * largest
        return all(_close(a, b) for a, b in drawn) and all(
            _close(a, b, rounding * float(scale.abs().max())) for (a, b), (_, scale) in zip(here, drawn, strict=True)
        )

    def _both(self, outputs: Tensor, targets: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]] | None:
        """Values and gradients, ours and theirs."""
        form, own = self._closed_form, copy.deepcopy(self.module).double()
        assert form is not None

        def ours(z: Tensor) -> Tensor | None:
            terms = form(z, targets)
            if not terms.count > 0:
                return None
            return terms.total() / terms.count if self.mean else terms.total()

        def theirs(z: Tensor) -> Tensor:
            found: Tensor = own(class_second(z, targets), targets)
            return found

        try:
            mine = _with_gradient(ours, outputs)
            given = None if mine is None else _with_gradient(theirs, outputs)
        except HesscopeError:
            raise
        except Exception:
            return None
        return None if mine is None or given is None else ((mine[0], given[0]), (mine[1], given[1]))


def _leading(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor] | None:
    """The first examples, where all of them are many numbers to compare at once; None where they are not, or do not come apart."""
    if outputs.numel() <= _AT_ONCE or not targets.ndim or len(targets) != len(outputs):
        return None
    count = max(1, _AT_ONCE * len(outputs) // outputs.numel())
    return outputs[:count], targets[:count]


def _with_gradient(loss: Callable[[Tensor], Tensor | None], outputs: Tensor) -> tuple[Tensor, Tensor] | None:
    """A loss and its gradient, in float64."""
    with torch.enable_grad():
        z = outputs.double().requires_grad_()
        value = loss(z)
        return None if value is None else (value.detach(), torch.autograd.grad(value, z)[0])


def _close(a: Tensor, b: Tensor, rounding: float = 1e-300) -> bool:
    size = float(b.abs().max())
    return not size < float("inf") or float((a - b).abs().max()) <= 1e-9 * size + rounding


def parse(loss: Any, reduction: str | None = None) -> SeparableLoss | Callable[..., Any]:
    """A SeparableLoss for a torch loss or a name; a function is returned as it is, as it may take a model."""
    if reduction not in (None, "mean", "sum"):
        refuse("reduction must be 'mean' or 'sum'", f"{reduction!r}", "Leave it out for torch losses.")
    if isinstance(loss, str):
        if loss not in NAMES:
            refuse("a loss name must be known", f"{loss!r}", f"Known: {', '.join(NAMES)}; or pass a torch loss module.")
        loss = NAMES[loss]()
    elif not isinstance(loss, nn.Module) and _hashable(loss) and loss in _FUNCTIONS:
        loss = NAMES[_FUNCTIONS[loss]]()
    if isinstance(loss, SeparableLoss):
        return loss
    if isinstance(loss, nn.CTCLoss) or loss is F.ctc_loss:
        refuse(
            "the loss must have a second derivative",
            "CTC, of whose gradient torch says that its derivative is not implemented",
            "Use hs.GaussNewton of another loss on the same logits, or write CTC in plain operations.",
        )
    if takes_nothing(loss):
        return Closure(loss)
    if isinstance(loss, nn.Module) or (callable(loss) and reduction is not None):
        if getattr(loss, "reduction", None) == reduction and closed_form_of(loss) is not None:
            reduction = None  # said twice
        return SeparableLoss(loss, reduction)
    if isinstance(loss, type):
        refuse("loss must be a loss, not a class of losses", f"{loss.__name__}", f"Make one: {loss.__name__}().")
    if not callable(loss):
        refuse(
            "loss must be a torch loss, a name or a function", f"{type(loss).__name__}", f"Names: {', '.join(NAMES)}."
        )
    return loss  # type: ignore[no-any-return]


class Closure:
    """A function without arguments, which holds its model and data itself, as a loss of the model."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def __call__(self, model: nn.Module, batch: Any = None) -> Any:
        if batch is not None:
            refuse(
                "a loss without arguments holds its own data", "data as well", "Leave data out, or take (model, batch)."
            )
        return self.function()


def takes_nothing(loss: Any) -> bool:
    """Whether this is a closure without arguments, which holds its model and data itself."""
    if isinstance(loss, nn.Module | type) or not callable(loss):
        return False
    try:
        return not inspect.signature(loss).parameters
    except (TypeError, ValueError):
        return False


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
