"""Problems that are spread over processes which are not there, or asked for what needs one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from .given import NAN, SIZE, hs, inputs, labels, of, spoiled
from .row import Row


@contextmanager
def _group() -> Iterator[None]:
    """A group of one process."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _in_group(call: Callable[[Any], object]) -> Callable[[], object]:
    def run() -> object:
        with _group():
            return call(of(distributed=True))

    return run


def _nan_in_group() -> object:
    with _group():
        return of(batch=(spoiled(inputs(), NAN), labels()), distributed=True).loss_value()


ROWS = [
    Row("no-group", lambda: of(distributed=True).loss_value(), "distributed", "no|not", "init_process_group"),
    Row(
        "no-group-product",
        lambda: hs.Hessian(of(distributed=True)) @ torch.ones(SIZE),
        "distributed",
        "no|not",
        "init_process_group",
    ),
    Row("distributed-text", lambda: of(distributed="no"), "distributed must be", "'no'", "True|False"),
    Row("jacobian", _in_group(hs.Jacobian), "a Jacobian lives in one process", "a distributed problem", "GaussNewton"),
    Row(
        "bound",
        _in_group(lambda p: hs.pacbayes.split(p, 3)),
        "all data in one process",
        "a distributed problem",
        "without distributed",
    ),
    Row(
        "vector-length",
        _in_group(lambda p: hs.Hessian(p) @ torch.ones(3)),
        rf"needs a tensor of shape \({SIZE},\)",
        r"\(3,\)",
        r"\w",
    ),
    Row(
        "solve-nan",
        _in_group(lambda p: hs.solve(hs.Hessian(p), torch.full((SIZE,), NAN))),
        "b must be finite",
        "NaN",
        "right-hand side",
    ),
    Row("nan-input", _nan_in_group, "must be finite", "nan", r"\w"),
]
