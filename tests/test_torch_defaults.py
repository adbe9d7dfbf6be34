"""torch's default device and type are the user's: nothing here may depend on them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import hesscope as hs
from source_tree import MODULES

Answer = Tensor | np.ndarray[Any, Any] | float
FACTORIES = {
    *("zeros", "ones", "empty", "full", "eye", "arange", "linspace", "logspace", "tensor", "as_tensor"),
    *("rand", "randn", "randint", "randperm", "triu_indices", "tril_indices"),
}
FLOATING = {"zeros", "ones", "empty", "eye", "linspace", "logspace", "rand", "randn"}
OWN = ("experiments", "zoo")  # networks and papers of our own, run as a user's script is


def _calls() -> Iterator[tuple[str, str, set[str | None]]]:
    for module in MODULES:
        if module.unit in OWN:
            continue
        for node in module.nodes:
            called = node.func if isinstance(node, ast.Call) else None
            if not (isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)):
                continue
            if isinstance(node, ast.Call) and called.value.id == "torch" and called.attr in FACTORIES:
                yield f"{module.name}:{node.lineno}", called.attr, {keyword.arg for keyword in node.keywords}


def test_new_tensors_say_where_they_are_and_of_which_type() -> None:
    calls = list(_calls())
    assert len(calls) > 100
    assert [where for where, _, given in calls if "device" not in given] == []
    assert [where for where, name, given in calls if name in FLOATING and "dtype" not in given] == []


@contextmanager
def _defaults(device: str | None, dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_device(device)
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(before)


def _model() -> nn.Module:
    torch.manual_seed(0)
    layers = (
        nn.Conv1d(2, 3, 2),
        nn.BatchNorm1d(3),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(9, 3),
        nn.ReLU(),
        nn.Linear(3, 3),
    )
    return nn.Sequential(*layers).eval()


ASKED: dict[str, Callable[[hs.Problem], Answer]] = {
    "gradient": lambda p: p.gradient(),
    "eigenpairs": lambda p: hs.eigenpairs(hs.Hessian(p), 2).values,
    "trace": lambda p: float(hs.trace(hs.Hessian(p)).value),
    "probes": lambda p: float(hs.trace(hs.Hessian(p), method="xtrace", tol=0.2).value),
    "diagonal": lambda p: np.asarray(hs.diagonal(hs.Hessian(p)).value),
    "solve": lambda p: np.asarray(hs.solve(hs.GaussNewton(p) + 1.0, np.ones(p.space.size)).x),
    "norms": lambda p: hs.block_norms(p, "neuron").norms,
    "spectra": lambda p: hs.block_spectra(p, "layer").nodes[0],
    "fisher": lambda p: hs.Fisher(p, kind="mc").dense(),
    "layer": lambda p: hs.layer_hessian(p, "4").dense(),
    "factors": lambda p: hs.decouple(p, "0").operator.dense(),
    "table": lambda p: hs.per_layer(p).trace,
    "double": lambda p: p.cast(torch.float64).gradient(),
}
# What multiplies vectors of its own, in memory or between products.
BESIDE: dict[str, Callable[[hs.Problem], Answer]] = {
    "vectors": lambda p: torch.as_tensor(hs.eigenpairs(p, 2, tol=0.9, max_products=12).vectors),
    "density": lambda p: hs.spectral_density(p, probes=2, steps=4).nodes,
    "sketch": lambda p: float(hs.frobenius_norm(p, 0.9, max_products=12).value),
    "rows": lambda p: np.asarray(hs.row_norms(p, 0.9, max_products=12).value),
    "dense": lambda p: hs.Dense(p.gradient()[:, None] * p.gradient()) @ p.gradient(),
    "overlap": lambda p: hs.model_overlap([p, p.at(_shifted(p), partial=True)], "4", k=2).mean,
    "subspaces": lambda p: hs.subspace_overlap(*(_orthonormal(draw) for draw in (0, 1))),
    "landscape": lambda p: hs.landscape(p, points=3).lines[0].losses,
    "edge": lambda p: hs.read_edge(p, _stepped(p).state_dict(), names=list(p.parameters)).top.values,
    "plan": lambda p: float(hs.plan(p, "trace").products),
    "drawn blocks": lambda p: hs.block_norms(p, "layer", method="stochastic", probes=3).norms,
}


def _shifted(problem: hs.Problem) -> dict[str, Tensor]:
    return {name: t.detach() + 0.01 for name, t in problem.parameters.items()}


def _orthonormal(draw: int) -> Tensor:
    q: Tensor = torch.linalg.qr(torch.randn(9, 3, generator=hs.Rng(draw).torch()))[0]
    return q


def _stepped(problem: hs.Problem) -> torch.optim.Optimizer:
    weights = [t.detach().clone().requires_grad_() for t in problem.parameters.values()]
    optimizer = torch.optim.Adam(weights, 1e-3)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    return optimizer


def _answers(model: nn.Module, data: TensorDataset) -> dict[str, Answer]:
    problem = hs.Problem.of(model, "cross_entropy", data, batch_size=5)
    return {name: ask(problem) for name, ask in ASKED.items()}


@cache
def _usual() -> tuple[nn.Module, TensorDataset, dict[str, Answer]]:
    model, draw = _model(), hs.Rng(0).torch()
    data = TensorDataset(torch.randn(12, 2, 4, generator=draw), torch.randint(0, 3, (12,), generator=draw))
    return model, data, _answers(model, data)


@pytest.mark.parametrize(
    ("device", "dtype"), [("meta", torch.float32), (None, torch.float64), (None, torch.bfloat16)], ids=str
)
def test_numbers_are_the_same_whatever_torch_defaults_to(device: str | None, dtype: torch.dtype) -> None:
    model, data, plain = _usual()
    with _defaults(device, dtype):
        found = _answers(model, data)
    for name, value in plain.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value), err_msg=name)


@pytest.mark.parametrize("name", [*ASKED, *BESIDE])
def test_numbers_are_the_same_inside_autocast(name: str) -> None:
    """Trainers call what is called in validation inside of it."""
    model, data, _ = _usual()
    ask = (ASKED | BESIDE)[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few products are enough to compare
        plain = ask(hs.Problem.of(model, "cross_entropy", data, batch_size=5))
        with torch.autocast("cpu"):
            found = ask(hs.Problem.of(model, "cross_entropy", data, batch_size=5))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(plain))
