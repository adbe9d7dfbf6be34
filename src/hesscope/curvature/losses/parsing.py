"""From a torch loss, a name or a function to rows with the weights the user trains with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import refuse
from .base import OutputLoss
from .elementwise import AutogradLoss, huber_loss, logistic_loss, squared_error_loss
from .softmax import SoftmaxLoss

NAMES: dict[str, Callable[[], nn.Module]] = {
    "cross_entropy": nn.CrossEntropyLoss,
    "mse": nn.MSELoss,
    "squared_error": lambda: _SquaredError(),
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


class _SquaredError(nn.Module):
    """`((f - y)**2).sum(-1).mean()`: summed over outputs, averaged over examples."""

    reduction = "mean"


@dataclass(frozen=True)
class SeparableLoss:
    """A loss of (outputs, targets) that Hesscope can take apart into rows."""

    module: nn.Module
    mean: bool

    def rows(self, outputs: Tensor, targets: Tensor, traced: bool = False) -> OutputLoss:
        """The rows of one batch. While a tracer watches (`traced`), nothing may depend on the values of the targets:
        ignored rows then stay, with weight zero, and `count` is not known."""
        if not isinstance(outputs, Tensor) or not outputs.is_floating_point():
            got = outputs.dtype if isinstance(outputs, Tensor) else type(outputs).__name__
            refuse(
                "the model must return a floating-point tensor",
                f"{got}",
                "Pass forward=lambda model, batch: (outputs, targets).",
            )
        module = self.module
        if isinstance(module, nn.CrossEntropyLoss):
            return _cross_entropy(module, outputs, targets, traced)
        return _entrywise(module, outputs, targets)


def parse(loss: Any) -> SeparableLoss | Callable[..., Any]:
    """A SeparableLoss for what we can take apart; any other callable is returned as it is."""
    if isinstance(loss, str):
        if loss not in NAMES:
            refuse("a loss name must be known", f"{loss!r}", f"Known: {', '.join(NAMES)}; or pass a torch loss module.")
        loss = NAMES[loss]()
    elif not isinstance(loss, nn.Module) and callable(loss) and loss in _FUNCTIONS:
        loss = NAMES[_FUNCTIONS[loss]]()
    if isinstance(loss, nn.Module):
        reduction = getattr(loss, "reduction", None)
        if reduction not in ("mean", "sum"):
            refuse(
                "a loss module must have reduction 'mean' or 'sum'",
                f"{reduction!r}",
                "Or pass loss(model, batch) -> (sum, count).",
            )
        return SeparableLoss(loss, reduction == "mean")
    if not callable(loss):
        refuse(
            "loss must be a torch loss, a name or a function", f"{type(loss).__name__}", f"Names: {', '.join(NAMES)}."
        )
    return loss  # type: ignore[no-any-return]


def _cross_entropy(module: nn.CrossEntropyLoss, outputs: Tensor, targets: Tensor, traced: bool) -> OutputLoss:
    soft_targets = targets.is_floating_point()
    f = _class_last(outputs, targets, soft_targets)
    classes = f.shape[-1]
    f = f.reshape(-1, classes)
    class_weight = module.weight.to(f) if module.weight is not None else None
    smoothing = float(module.label_smoothing)
    if soft_targets:
        t = (
            targets.movedim(1, -1)
            if targets.ndim > 1 and targets.shape == outputs.shape and targets.ndim > 2
            else targets
        )
        t = t.reshape(-1, classes).to(f)
        t = t * (1 - smoothing) + smoothing / classes
        t = t if class_weight is None else t * class_weight
        return SoftmaxLoss(f, float(len(f)), t.sum(-1), None, t)
    labels = targets.reshape(-1)
    valid = labels != module.ignore_index
    if traced:
        labels = labels.where(valid, 0)
    elif not bool(valid.all()):
        f, labels, valid = f[valid], labels[valid], valid[valid]
    if not traced and len(labels) and (int(labels.min()) < 0 or int(labels.max()) >= classes):
        refuse(
            f"class labels must lie in [0, {classes})",
            f"labels from {int(labels.min())} to {int(labels.max())}",
            "Check the number of outputs, or set ignore_index for padding.",
        )
    weight = torch.ones(len(labels), dtype=f.dtype, device=f.device) if class_weight is None else class_weight[labels]
    weight = weight * valid
    count = float("nan") if traced else float(weight.double().sum())
    if smoothing == 0:
        return SoftmaxLoss(f, count, weight, labels, None)
    spread = torch.full((classes,), smoothing / classes, dtype=f.dtype, device=f.device)
    soft = (spread if class_weight is None else spread * class_weight).expand(len(f), classes)
    soft = soft.scatter_add(-1, labels[:, None], ((1 - smoothing) * weight)[:, None])
    return SoftmaxLoss(f, count, soft.sum(-1), None, soft)


def _class_last(outputs: Tensor, targets: Tensor, soft: bool) -> Tensor:
    """Logits with the classes last: torch puts them second, language models put them last; the targets tell."""
    if outputs.ndim == 1:
        outputs = outputs[None]
    if outputs.ndim == 2:
        rest: tuple[int, ...] = tuple(outputs.shape[:1])
        fits = outputs.shape == targets.shape if soft else targets.numel() == outputs.shape[0]
        if fits:
            return outputs
    else:
        rest = (outputs.shape[0], *outputs.shape[2:])
        if tuple(targets.shape) == (tuple(outputs.shape) if soft else rest):
            return outputs.movedim(1, -1)
        if not soft and tuple(targets.shape) == tuple(outputs.shape[:-1]):
            return outputs
    refuse(
        f"cross-entropy targets must fit outputs of shape {tuple(outputs.shape)}",
        f"targets of shape {tuple(targets.shape)}",
        f"Expected class indices of shape {rest}; pass forward= to reshape or shift them.",
    )


def _entrywise(module: nn.Module, outputs: Tensor, targets: Tensor) -> OutputLoss:
    known = isinstance(module, nn.MSELoss | nn.HuberLoss | nn.SmoothL1Loss | nn.BCEWithLogitsLoss | _SquaredError)
    if known and tuple(outputs.shape) != tuple(targets.shape):
        refuse(
            f"targets must have the shape of the outputs, {tuple(outputs.shape)}",
            f"{tuple(targets.shape)}",
            "Broadcasting would train another loss; reshape the targets.",
        )
    count = float(outputs.numel())
    if not known:
        summed = copy.copy(module)
        summed.reduction = "sum"  # type: ignore[assignment]
        if isinstance(module, nn.NLLLoss):
            valid = targets != module.ignore_index
            count = float(valid.sum() if module.weight is None else module.weight[targets[valid]].double().sum())
        shape = outputs.shape
        f = outputs.reshape(shape[0] if outputs.ndim else 1, -1)
        return AutogradLoss(f, count, lambda z: summed(z.reshape(shape), targets))
    f = outputs.reshape(outputs.shape[0] if outputs.ndim else 1, -1)
    y = targets.reshape(f.shape).to(f)
    if isinstance(module, nn.HuberLoss):
        return huber_loss(f, y, count, module.delta, 1.0)
    if isinstance(module, nn.SmoothL1Loss):
        return huber_loss(f, y, count, module.beta, 1.0 / module.beta)
    if isinstance(module, nn.BCEWithLogitsLoss):
        weight = None if module.weight is None else module.weight.to(f).expand(outputs.shape).reshape(f.shape)
        positive = None if module.pos_weight is None else module.pos_weight.to(f).expand(outputs.shape).reshape(f.shape)
        return logistic_loss(f, y, count, weight, positive)
    return squared_error_loss(f, y, float(f.shape[0]) if isinstance(module, _SquaredError) else count)
