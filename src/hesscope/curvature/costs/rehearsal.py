"""How many products a run will take: the same run on a few of the examples, counted.

Spectra of a part of the data have much the same shape as those of all of it, and how many steps an algorithm takes depends on
little else. No rule of thumb knows that the small end of a spectrum takes ten times as many products as the large one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch

from ...errors import HesscopeError
from ...rng import Rng
from ..data import Batches, examples_in
from ..hessian import Hessian
from ..problem import Problem
from ..proofs.independence import scattered_examples

_SHARE = 8  # of the data, and of the seconds of the run
_LEAST = 32  # examples: fewer are another problem
_AT_ONCE = 0.5  # seconds that nobody minds
_PATIENCE = 120.0  # seconds that it may take by the price of a product
_NOT_REHEARSED = ("resume", "start", "max_basis")


@dataclass(frozen=True)
class Rehearsal:
    """Products of the run on a few examples, and its seconds."""

    products: int
    examples: int
    seconds: float


def rehearse(
    problem: Problem, function: Callable[..., Any], settings: dict[str, Any], seconds_with: Callable[[int], float]
) -> Rehearsal | None:
    """Run `function` on scattered examples; `seconds_with(examples)` is what that would take. None where it does not pay."""
    if not problem.batches.held or not problem.divisible:
        return None
    total = sum(examples_in(batch) or 1 for batch in problem.batches)
    most = min(_PATIENCE, max(_AT_ONCE, seconds_with(total) / _SHARE))
    count = max(1, total // 2)
    while count > _LEAST and (
        seconds_with(count) > most or (count > total // _SHARE and seconds_with(count) > _AT_ONCE)
    ):
        count = max(_LEAST, count // 2)
    # A few large examples, such as long texts, cannot be had for less than the run itself.
    if not seconds_with(count) <= _PATIENCE or (count <= _LEAST and seconds_with(count) > 2 * most):
        return None
    given = {name: value for name, value in settings.items() if name not in _NOT_REHEARSED}
    found, seconds = _run(problem, function, given, count)
    if found is None or not found.products:
        return None
    return Rehearsal(int(found.products), count, seconds)


def _run(problem: Problem, function: Callable[..., Any], settings: dict[str, Any], count: int) -> tuple[Any, float]:
    few = scattered_examples(problem.batches, count, Rng(0).child("rehearsal"))
    if not few:
        return None, 0.0
    from ...layers.facts import share_facts

    sample = problem._copy(batches=Batches(few, float("inf"), True))
    share_facts(problem, sample)
    if "b" not in settings and "b" in getattr(function, "__annotations__", {}):
        settings = {**settings, "b": torch.ones(problem.space.size, dtype=problem.dtype, device=problem.device)}
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Proofs are those of the problem itself, and are asked for when the run is.
            found = function(Hessian(sample, unchecked=True), **settings)
    except HesscopeError:
        return None, 0.0
    taken = time.perf_counter() - start
    return (found, taken) if isfinite(taken) else (None, 0.0)
