"""Losses that are no losses, and targets that do not fit them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hesscope.errors import DerivativeError

from .given import INF, NAN, hs, inputs, labels, network, of, spoiled
from .row import Row

F = nn.functional


def _returning(make: Any) -> Any:
    """A problem whose loss returns `make(sum, count)`."""

    def loss(model: nn.Module, batch: Any) -> Any:
        x, y = batch
        return make(F.cross_entropy(model(x), y, reduction="sum"), len(y))

    return of(loss=loss).loss_value()


def _mean_as_sum(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    return F.cross_entropy(model(x), y), len(y)


def _counts_itself(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    x, y = batch
    total = F.cross_entropy(model(x), y, reduction="sum")
    return total, len(y) + total


def _cut_off(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    return F.cross_entropy(model(x), y, reduction="sum").detach(), len(y)


def _frees_its_graph(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x = batch[0].clone().requires_grad_()
    out = model(x)
    slope = torch.autograd.grad(out.sum(), x)[0]
    return slope.square().sum() + out.square().sum(), len(x)


def _breaks(model: nn.Module, batch: Any) -> Any:
    raise ZeroDivisionError("no tokens")


def _noisy(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    return F.cross_entropy(model(x + torch.randn_like(x)), y, reduction="sum"), len(y)


def _used(made: Any) -> Any:
    """What shows up at the latest when the problem is used."""
    return made.loss_value()


def _soft(value: float) -> Tensor:
    return spoiled(torch.full((12, 3), 1 / 3), value)


def _halves(value: float) -> Tensor:
    return spoiled(torch.full((12, 3), 0.5), value)


def _weighted(*weights: float) -> Any:
    return _used(of(loss=nn.CrossEntropyLoss(weight=torch.tensor(weights))))


ROWS = [
    Row(
        "a loss that differentiates inside and frees its graph",
        lambda: hs.trace(of(loss=_frees_its_graph)),
        "every derivative must be right",
        "a loss that differentiates inside must keep its graph",
        "create_graph=True",
        DerivativeError,
    ),
    Row(
        "targets as a fourth argument",
        lambda: hs.Problem.of(network(), "cross_entropy", inputs(), labels()),
        "data is one argument",
        "a Tensor as params",
        r"\(inputs, targets\)",
    ),
    Row(
        "a loss that breaks on a batch without targets",
        lambda: hs.Problem.of(network(), _breaks, (inputs(),)),
        "the model and the loss must run on the first batch",
        "ZeroDivisionError: no tokens",
    ),
    Row(
        "a loss of three arguments",
        lambda: of(loss=lambda model, x, y: F.cross_entropy(model(x), y)),
        "the model and the loss must run on the first batch",
        "missing 1 required positional argument",
        r"\(outputs, targets\), \(model, batch\), or nothing",
    ),
    Row(
        "noise in a model in eval mode",
        lambda: hs.Problem.of(network().eval(), _noisy, (inputs(), labels())),
        "the loss must be a fixed function",
        "on two calls",
        "pass the noise with the data",
    ),
    Row(
        "labels-too-large",
        lambda: of(batch=(inputs(), labels() + 1)),
        r"class labels must lie in \[0, 3\)",
        "labels from 1 to 3",
        "outputs",
    ),
    Row(
        "labels-too-large-later",
        lambda: _used(of(batch=(inputs(), torch.cat([labels(8), labels(4) + 5])), batch_size=4)),
        r"class labels must lie in \[0, 3\)",
        "to 7",
        "outputs",
    ),
    Row(
        "labels-negative",
        lambda: of(batch=(inputs(), labels() - 1)),
        r"class labels must lie in \[0, 3\)",
        "labels from -1",
        "ignore_index",
    ),
    Row(
        "labels-all-ignored",
        lambda: _used(of(batch=(inputs(), torch.full((12,), -100)))),
        "must count for something",
        "0",
        "ignored",
    ),
    Row(
        "labels-one-hot-integers",
        lambda: of(batch=(inputs(), F.one_hot(labels()))),
        "cross-entropy targets must fit",
        r"\(12, 3\)",
        r"class indices of shape \(12,\)",
    ),
    Row(
        "labels-bool", lambda: of(batch=(inputs(), labels() > 0)), "class labels|targets must", "bool", r"long|integer"
    ),
    Row(
        "labels-float",
        lambda: of(batch=(inputs(), labels().float())),
        "cross-entropy targets must fit|class",
        r"\(12,\)|float32",
        r"\w",
    ),
    Row("soft-labels-negative", lambda: _used(of(batch=(inputs(), _soft(-0.5)))), r"\[0, 1\]", r"-0\.5", r"\w"),
    Row("soft-labels-above-one", lambda: _used(of(batch=(inputs(), _soft(7.0)))), r"\[0, 1\]", "7", r"\w"),
    Row("soft-labels-nan", lambda: _used(of(batch=(inputs(), _soft(NAN)))), r"finite|\[0, 1\]", "nan", r"\w"),
    Row("bce-above-one", lambda: _used(of(loss="bce", batch=(inputs(), _halves(2.0)))), r"\[0, 1\]", "2", r"\w"),
    Row(
        "bce-negative",
        lambda: _used(of(loss=nn.BCEWithLogitsLoss(), batch=(inputs(), _halves(-1.0)))),
        r"\[0, 1\]",
        "-1",
        r"\w",
    ),
    Row(
        "bce-weight-negative",
        lambda: _used(of(loss=nn.BCEWithLogitsLoss(weight=torch.tensor(-1.0)), batch=(inputs(), _halves(0.0)))),
        "weight",
        "-1",
        r"\w",
    ),
    Row(
        "bce-pos-weight-negative",
        lambda: _used(of(loss=nn.BCEWithLogitsLoss(pos_weight=-torch.ones(3)), batch=(inputs(), _halves(0.0)))),
        "pos_weight",
        "-1",
        r"\w",
    ),
    Row(
        "mse-shape",
        lambda: of(loss="mse", batch=(inputs(), torch.zeros(12, 1))),
        "targets must have the shape of the outputs",
        r"\(12, 1\)",
        "Broadcasting",
    ),
    Row(
        "mse-nan-target",
        lambda: _used(of(loss="mse", batch=(inputs(), spoiled(torch.zeros(12, 3), NAN)))),
        "must be finite",
        "nan",
        r"\w",
    ),
    Row(
        "mse-complex-target",
        lambda: of(loss="mse", batch=(inputs(), torch.zeros(12, 3, dtype=torch.complex64))),
        "target",
        "complex64",
        r"\w",
    ),
    Row("class-weight-negative", lambda: _weighted(1.0, -1.0, 1.0), "weight", "-1", r"\w"),
    Row(
        "label-weight-negative",
        lambda: of(
            loss=nn.MultiLabelSoftMarginLoss(weight=torch.tensor([1.0, -1.0, 1.0])), batch=(inputs(), _halves(1.0))
        ),
        "weights of a loss must be finite and not negative",
        "-1",
        r"\w",
    ),
    Row("class-weight-nan", lambda: _weighted(1.0, NAN, 1.0), "weight", "nan", r"\w"),
    Row("class-weight-zero", lambda: _weighted(0.0, 0.0, 0.0), "must count for something", "0", "of weight 0"),
    Row("class-weight-length", lambda: _weighted(1.0, 1.0), "weight.*3", r"2|\(2,\)", r"\w"),
    Row(
        "smoothing-above-one",
        lambda: _used(of(loss=nn.CrossEntropyLoss(label_smoothing=1.5))),
        r"label_smoothing must lie in \[0, 1\]",
        r"1\.5",
        r"\w",
    ),
    Row(
        "smoothing-negative",
        lambda: _used(of(loss=nn.CrossEntropyLoss(label_smoothing=-0.1))),
        r"label_smoothing must lie in \[0, 1\]",
        r"-0\.1",
        r"\w",
    ),
    Row(
        "smoothing-nan",
        lambda: _used(of(loss=nn.CrossEntropyLoss(label_smoothing=NAN))),
        r"label_smoothing must lie in \[0, 1\]",
        "nan",
        r"\w",
    ),
    Row(
        "huber-delta-negative",
        lambda: of(loss=nn.HuberLoss(delta=-1.0), batch=(inputs(), torch.zeros(12, 3))),
        "delta must be",
        "-1",
        r"\w",
    ),
    Row(
        "smooth-l1-beta-negative",
        lambda: of(loss=nn.SmoothL1Loss(beta=-1.0), batch=(inputs(), torch.zeros(12, 3))),
        "beta must be",
        "-1",
        r"\w",
    ),
    Row(
        "loss-misspelt", lambda: of(loss="crossentropy"), "a loss name must be known", "'crossentropy'", "cross_entropy"
    ),
    Row("loss-none", lambda: of(loss=None), "loss must be given", "tuple", "loss="),
    Row("loss-number", lambda: of(loss=0.5), "loss must be a torch loss", "float", "Names: cross_entropy"),
    Row(
        "loss-class", lambda: of(loss=nn.CrossEntropyLoss), "loss must be", "CrossEntropyLoss", r"CrossEntropyLoss\(\)"
    ),
    Row(
        "loss-unreduced",
        lambda: of(loss=nn.CrossEntropyLoss(reduction="none")),
        "reduction 'mean' or 'sum'",
        "'none'",
        "reduction='mean'",
    ),
    Row("loss-model", lambda: of(loss=network()), "the loss must run", "TypeError", "forward="),
    Row(
        "loss-one-argument",
        lambda: of(loss=lambda model: model(inputs()).square().sum()),
        r"loss\(model, batch\)|must run",
        "1|argument",
        r"\w",
    ),
    Row(
        "loss-two-arguments-no-data",
        lambda: of(loss=lambda model, batch: (model(inputs()).sum(), 1), batch=None),
        r"loss\(model\)|must run",
        "batch|argument",
        r"\w",
    ),
    Row(
        "loss-gives-none",
        lambda: _returning(lambda total, count: None),
        r"must return \(sum, count\)",
        "NoneType",
        "summed loss",
    ),
    Row(
        "loss-gives-text",
        lambda: _returning(lambda total, count: "0.3"),
        r"must return \(sum, count\)",
        "str",
        "summed loss",
    ),
    Row(
        "loss-gives-mean",
        lambda: _returning(lambda total, count: total / count),
        r"must return \(sum, count\)",
        "Tensor",
        "summed loss",
    ),
    Row(
        "loss-gives-vector",
        lambda: _returning(lambda total, count: (torch.stack([total, total]), count)),
        r"must return \(sum, count\)",
        r"tuple|\(2,\)",
        "summed loss",
    ),
    Row(
        "loss-gives-three",
        lambda: _returning(lambda total, count: (total, count, 1)),
        r"must return \(sum, count\)",
        "tuple|3",
        "summed loss",
    ),
    Row(
        "loss-gives-number",
        lambda: _returning(lambda total, count: (float(total), count)),
        r"must return \(sum, count\)",
        "tuple|float",
        "summed loss",
    ),
    Row("loss-gives-complex", lambda: _returning(lambda total, count: (total * 1j, count)), "real", "complex", r"\w"),
    Row("loss-count-negative", lambda: _returning(lambda total, count: (total, -count)), "count", "-12", r"\w"),
    Row(
        "loss-count-zero",
        lambda: _returning(lambda total, count: (total, 0)),
        "must count for something|count",
        "0",
        r"\w",
    ),
    Row(
        "loss-count-of-parameters",
        lambda: of(loss=_counts_itself).gradient(),
        "count .* must not depend on the parameters",
        "a graph to them",
        r"sum / count, 1",
    ),
    Row("loss-count-nan", lambda: _returning(lambda total, count: (total, NAN)), "count", "nan", r"\w"),
    Row("loss-count-infinite", lambda: _returning(lambda total, count: (total, INF)), "count", "inf", r"\w"),
    Row("loss-count-text", lambda: _returning(lambda total, count: (total, "all")), "count", "'all'|str", r"\w"),
    Row("loss-count-none", lambda: _returning(lambda total, count: (total, None)), "count", "None", r"\w"),
    Row(
        "loss-nan", lambda: _returning(lambda total, count: (total * NAN, count)), "loss must be finite", "nan", "batch"
    ),
    Row(
        "loss-mean-as-sum", lambda: _used(of(loss=_mean_as_sum)), "sum", "mean|twice|half|batch", r"reduction='sum'|sum"
    ),
    Row(
        "loss-cut-off",
        lambda: of(loss=_cut_off).gradient(),
        "depend on|differentiable",
        "no |none|without|detach",
        r"\w",
    ),
    Row("loss-raises", lambda: of(loss=_breaks), "must run on the first batch", "ZeroDivisionError: no tokens", r"\w"),
    Row("loss-random", lambda: of(loss=_noisy), "fixed function of the parameters", "on two calls", "freeze=True"),
    Row(
        "loss-without-data-gives-pair-of-text",
        lambda: hs.Problem.of(network(), lambda model: ("a", "b")),
        r"must return",
        "tuple|str",
        r"\w",
    ),
]
