"""Data that hold no examples, or examples that the model cannot take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from .given import INF, NAN, data, hs, inputs, labels, of, spoiled
from .row import Row


def _dataset() -> TensorDataset:
    return TensorDataset(*data())


def _empty_dataset() -> TensorDataset:
    return TensorDataset(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))


def _saturated() -> Any:
    """An infinite input that a saturated unit hides: the loss is finite, its gradient is not."""
    return of(_kinked(), batch=(spoiled(inputs(300), INF, 1189), labels(300)))


def _kinked() -> nn.Module:
    """Piecewise linear, so that the layers' own structure gives traces."""
    return nn.Sequential(nn.Linear(4, 5), nn.Hardtanh(), nn.Linear(5, 3))


def _by_name(key: str) -> Callable[[Any, Any], Any]:
    return lambda model, batch: (model(batch[key]), batch["labels"])


def _column(operator: Any) -> Any:
    return operator @ torch.ones(operator.shape[1])


_ASKED: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "gradient": lambda make: make().gradient(),
    "check": lambda make: hs.check(make()),
    "product": lambda make: _column(hs.Hessian(make())),
    "trace": lambda make: hs.trace(make()),
    "blocks": lambda make: hs.block_norms(make()),
    "spectra": lambda make: hs.block_spectra(make()),
    "layers": lambda make: hs.per_layer(make()),
    "gauss-newton": lambda make: hs.diagonal(hs.GaussNewton(make())),
    "dense": lambda make: hs.dense_hessian(make()),
    "picture": lambda make: hs.heat_map(make()),
    "full": lambda make: hs.approximate_full_eigenpairs(make(), 3),
    "factors": lambda make: hs.decouple(make(), "0"),
    "layer": lambda make: _column(hs.layer_hessian(make(), "0")),
}


def _nothing() -> Iterator[Any]:
    yield from ()


def _confident() -> nn.Module:
    """Gives the right class of the first example an infinite logit, which would look like a loss of zero."""
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [-1.0], [-2.0]]).expand(3, 4))
    return model


def _used(made: Any) -> Any:
    """What shows up at the latest when the problem is used."""
    return made.loss_value()


ROWS = [
    Row("data-number", lambda: of(batch=5), "data must be tensors", "int", r"data=\(inputs, targets\)"),
    Row("data-text", lambda: of(batch="mnist"), "data must be", "str", r"data=\(inputs, targets\)"),
    Row("data-nothing", lambda: of(batch=()), "data must hold", "none|0", r"\w"),
    Row("data-empty-list", lambda: of(batch=[]), "data must hold", "none|0", r"\w"),
    Row(
        "data-no-examples",
        lambda: of(batch=(torch.zeros(0, 4), torch.zeros(0).long())),
        "at least one example",
        "0 examples",
        "tensors",
    ),
    Row("data-lengths", lambda: of(batch=(inputs(12), labels(11))), "as many examples", r"\(12, 4\), \(11,\)", "equal"),
    Row(
        "data-inputs-only",
        lambda: of(batch=inputs()),
        "data must be|a batch must be",
        "Tensor",
        r"\(inputs, targets\)|forward=",
    ),
    Row(
        "data-arrays",
        lambda: of(batch=(inputs().numpy(), labels().numpy())),
        "tensor",
        "ndarray",
        r"from_numpy|as_tensor",
    ),
    Row("data-array", lambda: of(batch=inputs().numpy()), "tensor", "ndarray", r"from_numpy|as_tensor"),
    Row("data-list-targets", lambda: of(batch=(inputs(), labels().tolist())), "tensor", "list", r"tensor"),
    Row(
        "data-list-of-two",
        lambda: of(batch=[inputs(), labels()]),
        "a batch must be|data must be",
        "Tensor|list",
        r"forward=|\(inputs, targets\)",
    ),
    Row("data-list-of-numbers", lambda: of(batch=[1, 2, 3]), "a batch must be", "int", r"forward=|\(inputs, targets\)"),
    Row("data-missing", lambda: of(batch=None), "data", "None", r"data=\(inputs, targets\)"),
    Row(
        "data-dict-no-targets",
        lambda: of(batch={"input_ids": inputs()}),
        "a dict batch must have one of",
        r"\['input_ids'\]",
        "forward=",
    ),
    Row("data-empty-dict", lambda: of(batch={}), "a dict batch must have one of", r"\[\]", "forward="),
    Row(
        "data-shuffled",
        lambda: of(batch=DataLoader(_dataset(), shuffle=True)),
        "same order on every pass",
        "shuffles",
        "shuffle=False",
    ),
    Row(
        "data-sampled",
        lambda: of(batch=DataLoader(_dataset(), sampler=RandomSampler(_dataset()))),
        "same order on every pass",
        "at random",
        "shuffle=False",
    ),
    Row(
        "data-empty-loader",
        lambda: of(batch=DataLoader(_dataset(), batch_size=100, drop_last=True)),
        "at least one batch",
        "none",
        "drop_last",
    ),
    Row("data-empty-dataset", lambda: of(batch=_empty_dataset()), "data must hold", "none|0", r"\w"),
    Row("data-empty-iterator", lambda: of(batch=_nothing()), "at least one batch", "none", "loader"),
    Row(
        "data-batches-of-arrays",
        lambda: of(batch=[(inputs().numpy(), labels().numpy())]),
        "tensor",
        "ndarray",
        r"from_numpy|as_tensor",
    ),
    Row("inputs-nan", lambda: _used(of(batch=(spoiled(inputs(), NAN), labels()))), "must be finite", "nan", r"\w"),
    Row(
        "inputs-infinite",
        lambda: _used(of(_confident(), batch=(spoiled(inputs(), INF), labels()))),
        "must be finite",
        "nan|inf",
        r"\w",
    ),
    Row(
        "inputs-nan-later",
        lambda: _used(of(batch=(spoiled(inputs(), NAN, 47), labels()), batch_size=4)),
        "must be finite",
        "nan on batch",
        r"\w",
    ),
    Row(
        "inputs-nan-gradient",
        lambda: of(batch=(spoiled(inputs(), NAN), labels())).gradient(),
        "must be finite",
        "nan",
        r"\w",
    ),
    *(
        Row(f"saturated-{name}", partial(ask, _saturated), "must be finite", "NaN or infinity", r"\w")
        for name, ask in _ASKED.items()
    ),
    Row(
        "saturated-jacobian",
        lambda: _column(hs.Jacobian(of(batch=(spoiled(inputs(), INF, 47), labels())))),
        "must be finite",
        "NaN or infinity",
        "in the data",
    ),
    Row(
        "saturated-few",
        lambda: hs.decouple(of(batch=(spoiled(inputs(), INF, 47), labels())), "0"),
        "layer",
        "not finite on some examples",
        "block",
    ),
    Row(
        "model-breaks-later",
        lambda: _used(of(batch=[data(), (inputs(width=3), labels())])),
        "must run on batch 1",
        r"\(12, 3\).*RuntimeError",
        "forward=",
    ),
    Row(
        "inputs-integer",
        lambda: of(batch=(torch.ones(12, 4, dtype=torch.int64), labels())),
        "must run on the first batch",
        "int64",
        r"x\.float\(\)",
    ),
    Row(
        "inputs-integer-named",
        lambda: of(batch=[{"ids": torch.ones(12, 4, dtype=torch.int64), "labels": labels()}], forward=_by_name("ids")),
        "must run on the first batch",
        "int64",
        r"batch\['ids'\]\.float\(\)",
    ),
    Row(
        "inputs-misnamed",
        lambda: of(batch=[{"ids": torch.ones(12, 4, dtype=torch.int64), "labels": labels()}], forward=_by_name("x")),
        "must run on the first batch",
        r"KeyError: 'x'(?!.*float)",
        "forward=",
    ),
    Row(
        "inputs-double",
        lambda: of(batch=(inputs().double(), labels())),
        "must run on the first batch",
        "float64",
        r"\w",
    ),
    Row(
        "inputs-width",
        lambda: of(batch=(inputs(12, 7), labels())),
        "must run on the first batch",
        r"\(12, 7\)",
        "forward=",
    ),
    Row(
        "inputs-complex",
        lambda: of(batch=(inputs().to(torch.complex64), labels())),
        "must run on the first batch",
        "complex64",
        r"\w",
    ),
]
