"""torch's own losses, written out: exact types only, with the weights and counts the user trains with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import refuse
from .base import OutputLoss
from .elementwise import huber_loss, logistic_loss, squared_error_loss
from .layout import ClassAxis
from .softmax import SoftmaxLoss

ClosedForm = Callable[[Tensor, Tensor], OutputLoss]


class SquaredError(nn.Module):
    """`((f - y)**2).sum(-1).mean()`: summed over outputs, averaged over examples."""

    reduction = "mean"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum() / outputs.shape[0]


_TYPES = (nn.CrossEntropyLoss, nn.MSELoss, nn.HuberLoss, nn.SmoothL1Loss, nn.BCEWithLogitsLoss, SquaredError)


def closed_form_of(loss: Any) -> ClosedForm | None:
    """The closed form of a loss that is exactly one of torch's; None for subclasses, hooks and patched forwards."""
    kind = type(loss)
    if kind.__module__ == nn.CrossEntropyLoss.__module__ and isinstance(getattr(loss, "weight", None), Tensor):
        _check_weights("weights of a loss", loss.weight)
    if kind not in _TYPES or "forward" in vars(loss) or loss._forward_hooks or loss._forward_pre_hooks:
        return None
    if kind is nn.CrossEntropyLoss:
        _check_classes(loss)
        axis = ClassAxis()
        return lambda outputs, targets: _cross_entropy(loss, axis, outputs, targets)
    if kind is nn.BCEWithLogitsLoss:
        _check_positive(loss)
    if kind in (nn.HuberLoss, nn.SmoothL1Loss):
        _check_width(loss)
        if kind is nn.SmoothL1Loss and loss.beta == 0:
            return None  # the absolute error
    return lambda outputs, targets: _elementwise(loss, outputs, targets)


def _check_classes(loss: nn.CrossEntropyLoss) -> None:
    if not 0 <= float(loss.label_smoothing) <= 1:
        refuse("label_smoothing must lie in [0, 1]", f"{loss.label_smoothing}", "Usual values are 0 to 0.2.")
    _check_weights("class weights", loss.weight)


def _check_positive(loss: nn.BCEWithLogitsLoss) -> None:
    _check_weights("weights", loss.weight)
    if loss.pos_weight is not None and not bool((loss.pos_weight > 0).all()):
        refuse("pos_weight must be positive", f"{float(loss.pos_weight.min())}", "It multiplies the positive targets.")


def _check_weights(what: str, weight: Tensor | None) -> None:
    if weight is not None and not bool((weight >= 0).all() and weight.isfinite().all()):
        refuse(f"{what} must be finite and not negative", f"{float(weight.min())}", "A loss would have no minimum.")


def _check_width(loss: Any) -> None:
    width, name = (loss.delta, "delta") if isinstance(loss, nn.HuberLoss) else (loss.beta, "beta")
    if not (width > 0 or (name == "beta" and width == 0)):
        refuse(f"{name} must be positive", f"{width}", "It is where the loss turns from quadratic to linear.")


def _cross_entropy(loss: nn.CrossEntropyLoss, axis: ClassAxis, outputs: Tensor, targets: Tensor) -> OutputLoss:
    if targets.dtype == torch.bool:
        refuse("class labels must be integers", "bool", "Use targets.long(), or 'bce' for one output.")
    soft_targets = targets.is_floating_point()
    f = axis.moved_last(outputs, targets, soft_targets)
    classes = f.shape[-1]
    f = f.reshape(-1, classes)
    class_weight = loss.weight.to(f) if loss.weight is not None else None
    if class_weight is not None and len(class_weight) != classes:
        refuse(
            f"class weights must be one for each of {classes} outputs",
            f"{len(class_weight)}",
            "Pass weight=torch.ones(outputs), scaled class by class.",
        )
    smoothing = float(loss.label_smoothing)
    if soft_targets:
        t = targets.movedim(1, -1) if targets.ndim > 2 else targets
        t = t.reshape(-1, classes).to(f)
        _check_probabilities(t, "cross-entropy")
        t = t * (1 - smoothing) + smoothing / classes
        t = t if class_weight is None else t * class_weight
        return SoftmaxLoss(f, float(len(f)), t.sum(-1), None, t)
    labels = targets.reshape(-1).long()
    valid = labels != loss.ignore_index
    if not bool(valid.all()):
        f, labels = f[valid], labels[valid]
    if len(labels) and (int(labels.min()) < 0 or int(labels.max()) >= classes):
        refuse(
            f"class labels must lie in [0, {classes})",
            f"labels from {int(labels.min())} to {int(labels.max())}",
            "Check the number of outputs, or set ignore_index for padding.",
        )
    # No type is named here: a pass that names one is taken for a network that casts.
    weight = f.new_ones(len(labels)) if class_weight is None else class_weight[labels]
    count = float(weight.double().sum())
    if smoothing == 0:
        return SoftmaxLoss(f, count, weight, labels, None)
    spread = f.new_full((classes,), smoothing / classes)
    soft = (spread if class_weight is None else spread * class_weight).expand(len(f), classes)
    soft = soft.scatter_add(-1, labels[:, None], ((1 - smoothing) * weight)[:, None])
    return SoftmaxLoss(f, count, soft.sum(-1), None, soft)


def _check_probabilities(targets: Tensor, what: str) -> None:
    if targets.numel() and not bool(((targets >= 0) & (targets <= 1)).all()):
        refuse(
            f"targets of {what} must lie in [0, 1]",
            f"values from {float(targets.min()):.3g} to {float(targets.max()):.3g}",
            "They are probabilities; use 'mse' for real values.",
        )


def _elementwise(loss: nn.Module, outputs: Tensor, targets: Tensor) -> OutputLoss:
    if tuple(outputs.shape) != tuple(targets.shape):
        refuse(
            f"targets must have the shape of the outputs, {tuple(outputs.shape)}",
            f"{tuple(targets.shape)}",
            "Broadcasting would train another loss; reshape the targets.",
        )
    count = float(outputs.numel())
    f = outputs.reshape(outputs.shape[0] if outputs.ndim else 1, -1)
    y = targets.reshape(f.shape).to(f)
    if isinstance(loss, nn.HuberLoss):
        return huber_loss(f, y, count, loss.delta, 1.0)
    if isinstance(loss, nn.SmoothL1Loss):
        return huber_loss(f, y, count, loss.beta, 1.0 / loss.beta)
    if isinstance(loss, nn.BCEWithLogitsLoss):
        _check_probabilities(y, "binary cross-entropy")
        weight = None if loss.weight is None else loss.weight.to(f).expand(outputs.shape).reshape(f.shape)
        positive = None if loss.pos_weight is None else loss.pos_weight.to(f).expand(outputs.shape).reshape(f.shape)
        return logistic_loss(f, y, count, weight, positive)
    return squared_error_loss(f, y, float(f.shape[0]) if isinstance(loss, SquaredError) else count)
