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


def _afresh(network: str, do: Callable[[Any], object]) -> Callable[[], Work]:
    """Work on a new problem every time: with everything that has to be found out first."""

    def prepare() -> Work:
        _network(network)
        return lambda: do(_problem(network))

    return prepare


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
