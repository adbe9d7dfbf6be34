"""Trace and diagonal of the Hessian from its structure: sums of squares of per-example gradients.

G = Σ_r J_rᵀ S_r S_rᵀ J_r, so tr G = Σ_r Σ_c |J_rᵀ s_rc|² exactly, at the price of one backward pass to the activations
per column c; or, with random signs over the columns, an estimate whose variance is already averaged over all examples.
tr H = tr G where the network is affine in each parameter; elsewhere the functional Hessian adds a small term, which
random products estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..linalg import trace as generic_trace
from ..linalg.estimate import mean_and_stderr, warn_unmet
from ..results.spectra import Estimate
from ..rng import Rng
from .data import examples_in
from .hessian import CurvatureOperator, FunctionalHessian
from .losses.base import OutputLoss
from .multi_affine import curved_parameters, is_multi_affine
from .per_example import PerExample
from .problem import Problem

MOST_COLUMNS = 64  # beyond this, random signs reach 1 % with fewer backward passes
_DRAWS = 8
_MOST_DRAWS = 1024


def gauss_newton_layers(problem: Problem) -> PerExample | None:
    """The layers whose per-example gradients are cheap, if the problem has the structure at all."""
    if not problem.has_outputs:
        return None
    layers = PerExample(problem)
    batch = next(iter(problem.batches))
    if examples_in(batch) is None or not layers._modules or not layers.independent(batch):
        return None
    rows, _ = layers.trace_batch(batch)
    return layers if rows.columns() else None


def structured_trace(
    op: CurvatureOperator, tol: float, with_functional: bool, rng: Rng | None = None
) -> Estimate | None:
    """tr G, plus tr R unless the network is affine in each parameter; None where there is no structure to use."""
    problem = op.problem
    layers = gauss_newton_layers(problem)
    if layers is None or op.rows != problem.space:
        return None
    rng = (Rng(0) if rng is None else rng).child("structured-trace")
    curved = curved_parameters(problem) if with_functional else frozenset()
    functional = [name for name in problem.space.names if name in curved and name not in layers.uncovered]
    target = tol / math.sqrt(1 + bool(functional) + bool(layers.uncovered))
    value, stderr, passes, method = _gauss_newton_trace(problem, layers, target, rng)
    if functional:
        value, extra, more = _add_functional(problem, functional, value, target, rng)
        stderr, passes, method = math.hypot(stderr, extra), passes + more, method + " + functional products"
    if layers.uncovered:
        rest = generic_trace(op.block(list(layers.uncovered)), tol=target, rng=rng)
        value, stderr = value + float(rest.value), math.hypot(stderr, float(rest.stderr))
        passes, method = passes + rest.products, f"{method} + {rest.method} for {len(layers.uncovered)} tensors"
    if stderr > 1.05 * tol * abs(value):
        warn_unmet("trace", stderr, tol * abs(value), op, passes)
    return Estimate(value, stderr, passes, method, exact=stderr == 0.0)


def structured_diagonal(op: CurvatureOperator, tol: float, with_functional: bool) -> Estimate | None:
    """diag G = diag H, exactly, where the network is affine in each parameter and every example is one row."""
    problem = op.problem
    layers = gauss_newton_layers(problem)
    if layers is None or layers.uncovered or op.rows != problem.space:
        return None
    if with_functional and not is_multi_affine(problem):
        return None
    total = torch.zeros(problem.space.size, dtype=torch.float64, device=problem.device)
    passes = 0
    for batch in _pieces(problem, layers):
        rows, seen = layers.trace_batch(batch)
        if not _one_row_each(rows, batch):
            return None
        squares = layers.squares(rows, seen, map(rows.column, range(rows.columns())), entries=True)
        passes = max(passes, rows.columns())
        total += problem.space.pack([squares.get(name) for name in problem.space.names], total)
    value = problem.all_sum(total).mul_(problem.scale).cpu().numpy()
    return Estimate(value, np.zeros_like(value), passes, "gauss-newton columns", exact=True)


def _pieces(problem: Problem, layers: PerExample) -> Iterator[Any]:
    return (piece for batch in problem.batches for piece in layers.pieces(batch))


def _one_row_each(rows: OutputLoss, batch: Any) -> bool:
    return rows.columns() <= MOST_COLUMNS and len(rows.f) == examples_in(batch)


def _gauss_newton_trace(problem: Problem, layers: PerExample, tol: float, rng: Rng) -> tuple[float, float, int, str]:
    exact, columns = torch.zeros(1, dtype=torch.float64), 0
    for batch in _pieces(problem, layers):
        rows, seen = layers.trace_batch(batch)
        if not _one_row_each(rows, batch):
            return _sampled_trace(problem, layers, tol, rng)
        squares = layers.squares(rows, seen, map(rows.column, range(rows.columns())), entries=False)
        exact += sum(float(s.double().sum()) for s in squares.values())
        columns = max(columns, rows.columns())
    return float(problem.all_sum(exact)) * problem.scale, 0.0, columns, "gauss-newton columns"


def _sampled_trace(problem: Problem, layers: PerExample, tol: float, rng: Rng) -> tuple[float, float, int, str]:
    samples: list[float] = []
    while True:
        draws = torch.zeros(_DRAWS, dtype=torch.float64)
        for index, batch in enumerate(_pieces(problem, layers)):
            rows, seen = layers.trace_batch(batch)
            for draw in range(_DRAWS):
                signs = rng.child("signs", len(samples) + draw, index, _rank(problem)).torch()
                squares = layers.squares(rows, seen, iter([rows.random_column(signs)]), entries=False)
                draws[draw] += sum(float(s.double().sum()) for s in squares.values())
        samples += (problem.all_sum(draws) * problem.scale).tolist()
        value, stderr = mean_and_stderr(np.array(samples))
        if stderr <= tol * abs(value) or len(samples) >= _MOST_DRAWS:
            return value, stderr, len(samples), "gauss-newton random columns"


def _add_functional(problem: Problem, names: list[str], value: float, tol: float, rng: Rng) -> tuple[float, float, int]:
    """value + tr R over the named parameters, by Hutchinson's estimator to a tolerance relative to the sum."""
    block = FunctionalHessian(problem).block(names)
    if block.shape[0] <= _MOST_DRAWS // 4 and not problem.distributed:
        return value + float(block.dense().double().trace()), 0.0, block.shape[0]
    samples: list[float] = []
    for index, probe in enumerate(_probes(block, rng)):
        samples.append(float(block.layout.inner(probe, block.apply(probe))))
        if index >= _DRAWS - 1:
            mean, stderr = mean_and_stderr(np.array(samples))
            if stderr <= tol * abs(value + mean) or len(samples) >= _MOST_DRAWS:
                break
    return value + mean, stderr, len(samples)


def _probes(op: CurvatureOperator, rng: Rng) -> Iterator[Tensor]:
    index = 0
    while True:
        yield op.layout.draw(rng.child("probe", index), 1, "rademacher", op.dtype, op.device)
        index += 1


def _rank(problem: Problem) -> int:
    return torch.distributed.get_rank() if problem.distributed else 0
