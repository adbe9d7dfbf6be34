"""Losses with their targets: every torch loss for one output, and losses that users write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Targets = Callable[[Random, tuple[int, ...]], Tensor]


@dataclass(frozen=True)
class Loss:
    """What the user hands over, what that means as `value(outputs, targets)`, and targets for outputs of a shape."""

    given: Any  # a name, a module, or loss(model, batch) -> (sum, count)
    value: Callable[[Tensor, Tensor], Tensor] | nn.Module
    targets: Targets
    outputs: str = "any"  # "any", "log-probabilities", "probabilities", "positive"
    likelihood: bool = False  # plain cross-entropy: the exact Fisher matrix is the Gauss-Newton matrix
    by_batch: Callable[[nn.Module, Any], tuple[Tensor, Any]] | None = None
    plain_mean: bool = False  # every example weighs the same: the factors of a layer are unambiguous
    images: bool = True  # takes (B, C, T) outputs too


LOSSES: dict[str, Callable[[Random], Loss]] = {}


def loss(make: Callable[[Random], Loss]) -> Callable[[Random], Loss]:
    """Register the function under its own name."""
    LOSSES[make.__name__] = make
    return make


def _numbers(r: Random, shape: tuple[int, ...], draw: Callable[[], float]) -> Tensor:
    size = 1
    for side in shape:
        size *= side
    return torch.tensor([draw() for _ in range(size)], dtype=torch.float64).reshape(shape)


def classes(r: Random, shape: tuple[int, ...]) -> Tensor:
    """One class for each example (and position): the classes are the second axis."""
    return _numbers(r, (shape[0], *shape[2:]), lambda: r.randrange(shape[1])).long()


def normals(r: Random, shape: tuple[int, ...]) -> Tensor:
    return _numbers(r, shape, lambda: r.gauss(0, 1))


def outlying(r: Random, shape: tuple[int, ...]) -> Tensor:
    """Large residuals in the first half: a look at the first examples sees no curvature."""
    y = normals(r, shape)
    y[: max(1, len(y) // 2)] += 30.0
    return y


def bits(r: Random, shape: tuple[int, ...]) -> Tensor:
    return _numbers(r, shape, lambda: float(r.random() < 0.5))


def signs(r: Random, shape: tuple[int, ...]) -> Tensor:
    return 2 * bits(r, shape) - 1


def shares(r: Random, shape: tuple[int, ...]) -> Tensor:
    return _numbers(r, shape, lambda: r.random())


def counts(r: Random, shape: tuple[int, ...]) -> Tensor:
    return _numbers(r, shape, lambda: float(r.randrange(4)))


def soft_classes(r: Random, shape: tuple[int, ...]) -> Tensor:
    return torch.softmax(2 * normals(r, shape), 1)


def _reduction(r: Random) -> str:
    return r.choice(["mean", "mean", "sum"])


def _plain(module: nn.Module, targets: Targets, outputs: str = "any", **flags: Any) -> Loss:
    return Loss(module, module, targets, outputs, **flags)


def _some_ignored(index: int) -> Targets:
    def targets(r: Random, shape: tuple[int, ...]) -> Tensor:
        y = classes(r, shape)
        flat = y.view(-1)
        for i in range(1, len(flat)):  # the first stays: a mean over nothing is not a number
            if r.random() < 0.4:
                flat[i] = index
        return y

    return targets


def _class_weights(size: int) -> Tensor:
    return torch.tensor([0.5 + 0.7 * i for i in range(size)])


@loss
def cross_entropy(r: Random) -> Loss:
    reduction = _reduction(r)
    module = nn.CrossEntropyLoss(reduction=reduction)
    return _plain(module, classes, likelihood=True, plain_mean=reduction == "mean")


@loss
def cross_entropy_by_name(r: Random) -> Loss:
    return Loss("cross_entropy", nn.CrossEntropyLoss(), classes, likelihood=True, plain_mean=True)


@loss
def cross_entropy_ignore(r: Random) -> Loss:
    index = r.choice([-100, -1, 0])
    return _plain(nn.CrossEntropyLoss(ignore_index=index, reduction=_reduction(r)), _some_ignored(index))


@loss
def cross_entropy_weighted(r: Random) -> Loss:
    smoothing = r.choice([0.0, 0.2])
    module = nn.CrossEntropyLoss(_class_weights(3), label_smoothing=smoothing, reduction=_reduction(r))
    return _plain(module, classes)


@loss
def cross_entropy_everything(r: Random) -> Loss:
    module = nn.CrossEntropyLoss(_class_weights(3), ignore_index=1, label_smoothing=0.1, reduction=_reduction(r))
    return _plain(module, _some_ignored(1))


@loss
def cross_entropy_smooth(r: Random) -> Loss:
    return _plain(nn.CrossEntropyLoss(label_smoothing=r.choice([0.1, 1.0]), reduction=_reduction(r)), classes)


@loss
def cross_entropy_soft(r: Random) -> Loss:
    weight = _class_weights(3) if r.random() < 0.4 else None
    smoothing = r.choice([0.0, 0.0, 0.3])
    return _plain(nn.CrossEntropyLoss(weight, label_smoothing=smoothing, reduction=_reduction(r)), soft_classes)


@loss
def mse(r: Random) -> Loss:
    reduction = _reduction(r)
    return _plain(nn.MSELoss(reduction=reduction), normals, plain_mean=reduction == "mean")


@loss
def mse_by_name(r: Random) -> Loss:
    return Loss("mse", nn.MSELoss(), normals, plain_mean=True)


@loss
def huber(r: Random) -> Loss:
    return _plain(nn.HuberLoss(reduction=_reduction(r), delta=r.choice([0.5, 2.0])), r.choice([normals, outlying]))


@loss
def huber_by_name(r: Random) -> Loss:
    return Loss("huber", nn.HuberLoss(), outlying)


@loss
def smooth_l1(r: Random) -> Loss:
    return _plain(nn.SmoothL1Loss(reduction=_reduction(r), beta=r.choice([0.5, 2.0])), r.choice([normals, outlying]))


@loss
def l1(r: Random) -> Loss:
    return _plain(nn.L1Loss(reduction=_reduction(r)), normals)


@loss
def bce_logits(r: Random) -> Loss:
    weight = torch.tensor([0.4, 1.3, 2.0]) if r.random() < 0.6 else None
    other = torch.tensor([1.5, 0.2, 1.0]) if r.random() < 0.4 else None
    module = nn.BCEWithLogitsLoss(other, pos_weight=weight, reduction=_reduction(r))
    return _plain(module, r.choice([bits, shares]), images=False)


@loss
def bce_by_name(r: Random) -> Loss:
    return Loss("bce", nn.BCEWithLogitsLoss(), bits)


@loss
def bce(r: Random) -> Loss:
    return _plain(nn.BCELoss(reduction=_reduction(r)), bits, "probabilities")


@loss
def nll(r: Random) -> Loss:
    weight = _class_weights(3) if r.random() < 0.5 else None
    return _plain(nn.NLLLoss(weight, ignore_index=2, reduction=_reduction(r)), _some_ignored(2), "log-probabilities")


@loss
def poisson(r: Random) -> Loss:
    logs = r.random() < 0.5
    module = nn.PoissonNLLLoss(log_input=logs, full=r.random() < 0.3, reduction=_reduction(r))
    return _plain(module, counts, "any" if logs else "positive")


@loss
def kl_divergence(r: Random) -> Loss:
    log_target = r.random() < 0.5
    module = nn.KLDivLoss(reduction=r.choice(["batchmean", "batchmean", "sum", "mean"]), log_target=log_target)
    targets: Targets = (lambda r, shape: soft_classes(r, shape).log()) if log_target else soft_classes
    return _plain(module, targets, "log-probabilities")


@loss
def multilabel_soft_margin(r: Random) -> Loss:
    weight = torch.tensor([0.4, 1.3, 2.0]) if r.random() < 0.3 else None
    return _plain(nn.MultiLabelSoftMarginLoss(weight, reduction=_reduction(r)), bits, images=False)


@loss
def soft_margin(r: Random) -> Loss:
    return _plain(nn.SoftMarginLoss(reduction=_reduction(r)), signs)


@loss
def multi_margin(r: Random) -> Loss:
    return _plain(nn.MultiMarginLoss(p=r.choice([1, 2]), reduction=_reduction(r)), classes, images=False)


@loss
def hinge_embedding(r: Random) -> Loss:
    return _plain(nn.HingeEmbeddingLoss(reduction=_reduction(r)), signs)


class FocalLoss(nn.CrossEntropyLoss):
    """Lin et al. (2017), the way many write it."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        terms = F.cross_entropy(input, target, reduction="none")
        return ((1 - torch.exp(-terms)) ** 2 * terms).mean()


class WeightedMSE(nn.MSELoss):
    """Errors of the first output count five times."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        weight = torch.ones_like(input)
        weight[:, 0] = 5.0
        return (weight * (input - target) ** 2).mean()


class Temperature(nn.CrossEntropyLoss):
    """Cross-entropy at another temperature, through its parent."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return super().forward(input / 2.0, target)


@loss
def focal_subclass(r: Random) -> Loss:
    return _plain(FocalLoss(), classes)


@loss
def weighted_mse_subclass(r: Random) -> Loss:
    return _plain(WeightedMSE(), normals)


@loss
def temperature_subclass(r: Random) -> Loss:
    return _plain(Temperature(reduction=_reduction(r)), classes)


class Lying(nn.Module):
    """A loss of one's own that says one reduction and does the other."""

    def __init__(self, reduction: str, kind: str) -> None:
        super().__init__()
        self.reduction, self.kind = reduction, kind

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        terms = (outputs - targets).cosh().log() if self.kind == "logcosh" else (outputs - targets).abs() ** 3
        return terms.mean() if self.reduction == "sum" else terms.sum()


@loss
def lying_reduction(r: Random) -> Loss:
    return _plain(Lying(r.choice(["mean", "sum"]), r.choice(["logcosh", "cube"])), normals)


class LogCosh(nn.Module):
    """A loss of one's own, without any attribute."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).cosh().log().mean()


@loss
def own_module(r: Random) -> Loss:
    return _plain(LogCosh(), normals)


class Combined(nn.Module):
    """Cross-entropy plus a multiple of the squared outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.cross_entropy = nn.CrossEntropyLoss()

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.cross_entropy(outputs, targets) + 0.1 * outputs.square().mean()


@loss
def combined(r: Random) -> Loss:
    return _plain(Combined(), classes)


def _patched(r: Random) -> Loss:
    module = nn.MSELoss()
    module.forward = lambda outputs, targets: F.smooth_l1_loss(outputs, targets)  # type: ignore[method-assign, assignment]
    return _plain(module, normals)


LOSSES["patched_mse"] = _patched


def _cube_of_batch(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    terms = (model(x) - y).abs() ** 3
    return terms.sum(), len(terms)


def _decayed_batch(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    x, y = batch
    terms = F.cross_entropy(model(x), y, reduction="none").flatten()
    decay = sum(p.square().sum() for p in model.parameters())
    return terms.sum() + 0.05 * len(terms) * decay, torch.tensor(float(len(terms)))


@loss
def sum_and_count(r: Random) -> Loss:
    return Loss(_cube_of_batch, LogCosh(), normals, by_batch=_cube_of_batch)


@loss
def sum_and_count_decay(r: Random) -> Loss:
    return Loss(_decayed_batch, LogCosh(), classes, by_batch=_decayed_batch)
