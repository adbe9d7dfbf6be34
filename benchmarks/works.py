"""Works of our own that two versions of Hesscope are compared on, in names that both have; run as a worker process."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

import hesscope as hs
from hesscope.operators import Layout

from . import models

Work = Callable[[], object]


@cache
def _network(name: str) -> tuple[Any, ...]:
    made: tuple[Any, ...] = getattr(models, name)()
    return made


def _problem(name: str) -> Any:
    model, x, y = _network(name)
    return hs.Problem.of(model, "cross_entropy", (x, y))


def _products(matrix: str, network: str, count: int) -> Callable[[], Work]:
    def prepare() -> Work:
        operator = getattr(hs, matrix)(_problem(network))
        block = torch.randn(operator.shape[0], count)
        return lambda: operator @ block

    return prepare


def _of_problem(network: str, do: Callable[[Any], object]) -> Callable[[], Work]:
    """Work on one problem, kept as a user keeps it: what was proven of it once is not proven again."""

    def prepare() -> Work:
        problem = _problem(network)
        return lambda: do(problem)

    return prepare


def _in_batches(count: int, size: int) -> Callable[[], Work]:
    """Products with a block of vectors, of data in small batches."""

    def prepare() -> Work:
        model, x, y = _network("mlp")
        data = list(zip(x.split(size), y.split(size), strict=True))
        operator = hs.Hessian(hs.Problem.of(model, "cross_entropy", data))
        block = torch.randn(operator.shape[0], count)
        return lambda: operator @ block

    return prepare


def _rebuilt(matrix: str) -> Callable[[], Work]:
    """A product of which nothing is kept."""

    def prepare() -> Work:
        model, x, y = _network("gpt")
        operator = getattr(hs, matrix)(hs.Problem.of(model, "cross_entropy", (x, y), memory=0))
        v = torch.randn(operator.shape[0])
        return lambda: operator @ v

    return prepare


def _of_wide(loss: str, do: Callable[[Any], object]) -> Callable[[], Work]:
    """The network of Dong et al.'s Figures 2-3: d = C = 500, m = 8, 5,000 examples."""

    def prepare() -> Work:
        model, x, y = _network("wide")
        targets = y if loss == "cross_entropy" else torch.nn.functional.one_hot(y, 500).float()
        problem = hs.Problem.of(model, loss, (x, targets), batch_size=len(x))
        return lambda: do(problem)

    return prepare


def _layer_product(network: str, layer: str) -> Callable[[], Work]:
    def prepare() -> Work:
        operator = hs.layer_hessian(_problem(network), layer)
        v = torch.randn(operator.shape[1])
        return lambda: operator @ v

    return prepare


def _afresh(network: str, do: Callable[[Any], object]) -> Callable[[], Work]:
    """Work on a new problem every time: with everything that has to be found out first."""

    def prepare() -> Work:
        _network(network)
        return lambda: do(_problem(network))

    return prepare


def _orthogonal(count: int, length: int) -> Work:
    from hesscope.linalg.krylov.orthogonal import project_out

    layout, draw = Layout(length), hs.Rng(0).torch()
    rows = torch.randn(count, length, generator=draw).mul_(length**-0.5)
    vector = torch.randn(1, length, generator=draw)
    return lambda: project_out(layout, rows.T, vector.T)


WORKS: dict[str, Callable[[], Work]] = {
    "Problem.of, MLP": _afresh("mlp", lambda problem: None),
    "Problem.of and a first product, MLP": _afresh(
        "mlp", lambda problem: hs.Hessian(problem) @ torch.ones(problem.space.size)
    ),
    "8 Hessian products, MLP": _products("Hessian", "mlp", 8),
    "8 Gauss-Newton products, MLP": _products("GaussNewton", "mlp", 8),
    "8 Fisher products, MLP": _products("Fisher", "mlp", 8),
    "1 Hessian product, LeNet": _products("Hessian", "lenet", 1),
    "4 Hessian products, LeNet": _products("Hessian", "lenet", 4),
    "4 Gauss-Newton products, LeNet": _products("GaussNewton", "lenet", 4),
    "1 Hessian product, GPT": _products("Hessian", "gpt", 1),
    "1 Gauss-Newton product, GPT": _products("GaussNewton", "gpt", 1),
    "5 eigenpairs, LeNet": _of_problem("lenet", lambda problem: hs.eigenpairs(hs.Hessian(problem), k=5)),
    "density, small MLP": _of_problem("small_mlp", lambda problem: hs.spectral_density(hs.Hessian(problem))),
    "trace of a new problem, MLP": _afresh("mlp", lambda problem: hs.trace(hs.Hessian(problem))),
    "trace of a new problem, LeNet": _afresh("lenet", lambda problem: hs.trace(hs.Hessian(problem))),
    "diagonal, MLP": _of_problem("mlp", lambda problem: hs.diagonal(hs.Hessian(problem))),
    "diagonal, LeNet": _of_problem("lenet", lambda problem: hs.diagonal(hs.Hessian(problem))),
    "dense Hessian, small MLP": _of_problem("small_mlp", hs.dense_hessian),
    "block norms by neuron, small MLP": _of_problem(
        "small_mlp", lambda problem: hs.block_norms(problem, hs.Partition.by("neuron", problem))
    ),
    "Kronecker factors, MLP": _of_problem("mlp", hs.decouple_layers),
    "Kronecker factors, LeNet": _of_problem("lenet", hs.decouple_layers),
    "layer Hessian and 8 products, MLP": _of_problem(
        "mlp", lambda problem: hs.layer_hessian(problem, "2") @ torch.ones(512 * 512, 8)
    ),
    "32 Hessian products, MLP in 8 batches": _in_batches(32, 128),
    "1 Hessian product, GPT, rebuilt": _rebuilt("Hessian"),
    "1 Gauss-Newton product, GPT, rebuilt": _rebuilt("GaussNewton"),
    "10 eigenpairs of a new problem, LeNet": _afresh(
        "lenet", lambda problem: hs.eigenpairs(hs.Hessian(problem), k=10, tol=1e-3)
    ),
    "50 eigenpairs of a new problem, LeNet": _afresh(
        "lenet", lambda problem: hs.eigenpairs(hs.Hessian(problem), k=50, tol=1e-3)
    ),
    "density of a new problem, LeNet": _afresh(
        "lenet", lambda problem: hs.spectral_density(hs.Hessian(problem), probes=10, steps=80)
    ),
    "trace, MLP": _of_problem("mlp", lambda problem: hs.trace(hs.Hessian(problem), tol=0.01)),
    "trace, LeNet": _of_problem("lenet", lambda problem: hs.trace(hs.Hessian(problem), tol=0.01)),
    "dense 8000 x 8000, cross-entropy": _of_wide("cross_entropy", hs.dense_hessian),
    "dense 8000 x 8000, squared error": _of_wide("squared_error", hs.dense_hessian),
    "block norms of both layers, cross-entropy": _of_wide(
        "cross_entropy", lambda problem: [hs.block_norms(problem.select(part)) for part in ("0.*", "2.*")]
    ),
    "dense Hessian, CNN": _of_problem("small_cnn", hs.dense_hessian),
    "factors of all layers, 12,000 examples": _of_problem("wide_mlp", hs.decouple_layers),
    **{f"layer product, F-200², {layer}": _layer_product("f200", layer) for layer in ("fc1", "fc2", "fc3")},
    **{f"layer product, LeNet5, {layer}": _layer_product("lenet5", layer) for layer in ("conv1", "conv2", "fc1")},
    "50 eigenpairs of fc1, F-200²": _of_problem(
        "f200", lambda problem: hs.eigenpairs(hs.layer_hessian(problem, "fc1"), k=50, tol=1e-3)
    ),
    "head of 50,257 tokens": _of_problem("language_head", lambda problem: hs.output_block_norms(problem, sampled=1000)),
    "a vector orthogonal to 12, 20 million entries": lambda: _orthogonal(12, 20_000_000),
    "check, LeNet": _afresh("lenet", lambda problem: hs.check(problem)),
}


def serve() -> None:
    """Answer each name on standard input with the processor seconds of one more run of that work, or what it raised."""
    torch.set_num_threads(1)
    ready: dict[str, Work] = {}
    for line in sys.stdin:
        name = line.strip()
        try:
            if name not in ready:
                ready.clear()  # one work's graphs at a time
                ready[name] = WORKS[name]()
                ready[name]()
            start = time.process_time()
            ready[name]()
            print(json.dumps({"seconds": time.process_time() - start}), flush=True)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    serve()
