"""Trace and diagonal of curvature matrices from the structure of layers: sums of squares of per-example gradients.

G = Σ_r J_rᵀ S_r S_rᵀ J_r, so tr G = Σ_r Σ_c |J_rᵀ s_rc|² exactly, at the price of one backward pass to the activations
per column c; or, with random signs over the columns, an estimate whose variance is already averaged over all examples.
tr H = tr G over the layers behind which factors of the loss give the second derivative; elsewhere the functional
Hessian adds a term, which products estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from ..curvature.gradient_mode import differentiable
from ..curvature.hessian import CurvatureOperator, FunctionalHessian
from ..curvature.losses.base import OutputLoss
from ..curvature.problem import Problem
from ..curvature.processes import from_every
from ..linalg.completion import FEW, MOST
from ..linalg.estimates.estimate import mean_of_forms
from ..linalg.estimates.traces import trace as generic_trace
from ..linalg.exact import SMALL
from ..results.spectra import Estimate
from ..rng import Rng
from .capturing import Capture
from .example_gradients import ExampleGradients, one_row_each, total_of, zeros
from .facts import ProblemFacts, facts_of
from .shared_captures import captures_shared

MOST_COLUMNS = 64  # beyond this, random signs reach 1 % with fewer backward passes
_DRAWS = 8
_MOST_DRAWS = 1024
_KNOWN: WeakKeyDictionary[Problem, dict[tuple[str, ...], float]] = WeakKeyDictionary()  # tr G by columns, by parameters


@differentiable()
def known_trace(
    op: CurvatureOperator, tol: float, rng: Rng, max_products: int | None, with_functional: bool
) -> Estimate | None:
    """tr G, plus tr R over the layers that need it; None where there is no structure that pays."""
    problem = op.problem
    if not problem.has_outputs or op.rows != problem.space:
        return None
    with captures_shared(problem):
        return _known_trace(op, tol, rng, max_products, with_functional)


def _known_trace(
    op: CurvatureOperator, tol: float, rng: Rng, max_products: int | None, with_functional: bool
) -> Estimate | None:
    problem, facts = op.problem, facts_of(op.problem)
    if facts.exact:
        op.need_right()  # what is known of layers is known by double backward
    parts = _Parts(op, facts, with_functional)
    if not parts.covered:
        return None
    if max_products is not None and parts.exact_columns:
        parts.exact_columns = parts.columns_fit(max_products)
    exact = not parts.curved and not parts.rest and parts.exact_columns
    size = problem.space.size
    affordable = max_products is None or max_products >= size
    few = FEW if affordable else SMALL
    if size <= (parts.columns if exact else few):
        return None  # all of it by products costs no more, and is exact
    rng = rng.child("known trace")
    shares = 1 + bool(parts.curved) + bool(parts.rest)
    # Where all products are affordable, a quarter of what they cost must do; then they take over.
    fewer = _MOST_DRAWS if size > MOST else max(_DRAWS, size // (4 * shares))
    limit = max_products // shares if max_products is not None else _MOST_DRAWS if exact else fewer
    if limit < max(_DRAWS, facts.columns if parts.exact_columns else 0):
        return None  # products alone keep within the budget
    summed = parts.by_columns() if parts.exact_columns else None
    if exact and summed is None:  # some example is several rows, as those without a label are none
        if size <= few:
            return None
        limit = min(limit, fewer)
    target = tol / math.sqrt(shares)
    value, stderr, passes, method = summed or parts.by_signs(target, rng, limit)
    if parts.curved:
        extra, more_stderr, more = _functional_trace(op, parts.curved, value, target, rng, limit)
        value, stderr, passes = value + extra, math.hypot(stderr, more_stderr), passes + more
        method += " + functional products"
    if parts.rest:
        block = op.restricted(problem.space.only(parts.rest))
        rest = generic_trace(block, target, rng=rng, max_products=limit)
        value, stderr = value + float(rest.value), math.hypot(stderr, float(rest.stderr))
        passes, method = passes + rest.products, f"{method} + {rest.method} for {len(parts.rest)} tensors"
    return Estimate(value, stderr, passes, method, exact=stderr == 0.0)


@differentiable()
def known_diagonal(op: CurvatureOperator, max_products: int | None, with_functional: bool) -> Estimate | None:
    """diag G = diag H, exactly, where layers cover everything and every example is one row; None elsewhere."""
    problem = op.problem
    if not problem.has_outputs or op.rows != problem.space:
        return None
    parts = _Parts(op, facts_of(problem), with_functional)
    if parts.covered:
        op.need_right()
    if parts.rest or parts.curved or not parts.exact_columns:
        return None
    if max_products is not None and not parts.columns_fit(max_products):
        return None
    total, passes, other = zeros(problem), 0, False
    for batch in parts.gradients.pieces():
        run = parts.gradients.capture(batch)
        assert isinstance(run.terms, OutputLoss)
        if not one_row_each(run, batch):
            other = True
            break
        columns = run.terms.columns()
        squares = parts.gradients.squares(run, map(run.terms.column, range(columns)), entries=True)
        passes = max(passes, columns)
        total += problem.space.pack([squares.get(name) for name in problem.space.names], total)
    if problem._anywhere(other):
        return None
    value = problem.all_sum(total).mul_(problem.scale)[op.layout.local].cpu().numpy()
    return Estimate(value, np.zeros_like(value), _most(problem, passes), "gauss-newton columns", exact=True)


class _Parts:
    """Which parameters the layers cover, behind which of them a functional term is left, and which are in no layer."""

    def __init__(self, op: CurvatureOperator, facts: ProblemFacts, with_functional: bool) -> None:
        self.problem = op.problem
        selected = set(self.problem.space.names)
        layers = [layer for layer in facts.exact if selected & set(layer.parameters)]
        own = {name for layer in layers for name in layer.parameters if name in selected}
        curved = {name for layer in layers if not layer.gauss_newton for name in layer.parameters}
        self.covered = [name for name in self.problem.space.names if name in own]
        self.curved = [name for name in self.covered if with_functional and name in curved]
        self.rest = [name for name in self.problem.space.names if name not in own]
        self.gradients = ExampleGradients(self.problem, layers)
        self.exact_columns = facts.rows_are_examples and 0 < facts.columns <= MOST_COLUMNS
        self.columns = facts.columns
        self._only: tuple[Any, Capture] | None = None
        self.any_columns = facts.columns > 0
        if not self.any_columns:
            self.covered = []

    def columns_fit(self, limit: int) -> bool:
        """Whether exact sums stay within so many passes: asked of all data, for one forward pass, before any is spent."""
        if tuple(self.covered) in _KNOWN.get(self.problem, {}):
            return True
        other = 0
        for index, batch in enumerate(self.gradients.pieces()):
            run = self.gradients.capture(batch)
            assert isinstance(run.terms, OutputLoss)
            other += not one_row_each(run, batch) or run.terms.columns() > limit
            self._only = (batch, run) if index == 0 else None
        # Summed over processes, so that all of them decide alike.
        return not float(self.problem.all_sum(torch.tensor([other], dtype=torch.float64, device=self.problem.device)))

    def by_columns(self) -> tuple[float, float, int, str] | None:
        """tr G over the covered parameters, its error, the backward passes spent, and how; None where some example is several
        rows.

        The trace of H finds that of G on its way: whoever asks for the other one gets it without a pass.
        """
        known, how = _KNOWN.setdefault(self.problem, {}), "gauss-newton columns"
        key = tuple(self.covered)
        if key in known:
            return known[key], 0.0, 0, how
        value, passes = self._by_columns()
        if value is None:
            return None
        known[key] = value
        return value, 0.0, passes, how

    def _by_columns(self) -> tuple[float | None, int]:
        total, passes = torch.zeros(2, dtype=torch.float64, device="cpu"), 0
        for batch, run in self._runs():
            assert isinstance(run.terms, OutputLoss)
            if not one_row_each(run, batch):
                total[1] = 1.0
                break
            columns = run.terms.columns()
            squares = self.gradients.squares(run, map(run.terms.column, range(columns)), entries=False)
            total[0] += total_of(squares, self.covered)
            passes = max(passes, columns)
        # Summed over processes, so that all of them decide alike.
        value, other = self.problem.all_sum(total).tolist()
        return None if other else value * self.problem.scale, _most(self.problem, passes)

    def _runs(self) -> Iterator[tuple[Any, Capture]]:
        """All data, piece by piece; data of one piece that was run already is not run again."""
        if self._only is not None:
            yield self._only
            return
        for batch in self.gradients.pieces():
            yield batch, self.gradients.capture(batch)

    def by_signs(self, tol: float, rng: Rng, limit: int) -> tuple[float, float, int, str]:
        samples: list[float] = []
        while True:
            count = max(1, min(_DRAWS, limit - len(samples)))
            draws = torch.zeros(count, dtype=torch.float64, device="cpu")
            for index, batch in enumerate(self.gradients.pieces()):
                run = self.gradients.capture(batch)
                assert isinstance(run.terms, OutputLoss)
                for draw in range(count):
                    signs = rng.child("signs", len(samples) + draw, index, self._rank).torch()
                    squares = self.gradients.squares(run, iter([run.terms.random_column(signs)]), entries=False)
                    draws[draw] += total_of(squares, self.covered)
            samples += (self.problem.all_sum(draws) * self.problem.scale).tolist()
            value, stderr = mean_of_forms(np.array(samples))
            if (len(samples) >= _DRAWS and stderr <= tol * abs(value)) or len(samples) >= limit:
                return value, stderr, len(samples), "gauss-newton random columns"

    @property
    def _rank(self) -> int:
        return torch.distributed.get_rank() if self.problem.distributed else 0


def _most(problem: Problem, passes: int) -> int:
    """Of all processes, of which one may have no data."""
    return max(from_every(passes)) if problem.distributed else passes


def _functional_trace(
    op: CurvatureOperator, names: list[str], value: float, tol: float, rng: Rng, limit: int
) -> tuple[float, float, int]:
    """tr R over the named parameters: all products where they are few, else Hutchinson's estimator."""
    block = FunctionalHessian(op.problem).restricted(op.problem.space.only(names))
    n = block.shape[0]
    if n <= max(2, limit) and n <= _MOST_DRAWS // 4:
        return float(block.dense().double().trace()), 0.0, n
    samples: list[float] = []
    while True:
        index = len(samples)
        probe = block.layout.draw(rng.child("probe", index), 1, "rademacher", block.dtype, block.device)
        samples.append(float(block.layout.inner(probe, block.apply(probe))))
        if len(samples) < 2:
            continue
        mean, stderr = mean_of_forms(np.array(samples))
        enough = len(samples) >= _DRAWS and stderr <= tol * abs(value + mean)
        if enough or len(samples) >= max(2, limit):
            return mean, stderr, len(samples)
