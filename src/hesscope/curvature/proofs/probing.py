"""A few examples in float64: what proofs and special methods are tried on."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import torch

from ...memory import give_back
from ..data import Batches, examples_in
from ..models.evaluation import ScalarLoss
from ..models.state import cast
from ..processes import same_everywhere

if TYPE_CHECKING:
    from ..problem import Problem

_LARGE = 1 << 28  # bytes of parameters in float64 from which on no copy of them is held for later
_SHARED = 1 << 22  # the same where processes share the work so that each holds less


def is_large(problem: Problem) -> bool:
    """Whether a copy of the parameters in float64 is a burden."""
    return 8 * problem.space.size >= (_SHARED if problem.lean else _LARGE)


def give_back_of(problem: Problem) -> None:
    """Return what a stage has freed to the system, where that is much beside what is kept: glibc would hold half as much again."""
    if problem.lean or is_large(problem):
        give_back()


def probe_of(problem: Problem) -> Problem:
    """The problem on a few examples in float64 where the model runs in it, in one process; made once, where it is small."""
    if problem.selected_from is not None:
        return problem.selected_from.probe.only(problem.space.names)
    return _on(exact(problem, probe_batches(problem)), problem)


def on_few_examples(problem: Problem) -> Problem:
    """The same in the problem's own type, for those who have no use for another copy of all parameters."""
    return _on(problem, problem)


def _on(typed: Problem, problem: Problem) -> Problem:
    made = typed._copy(batches=Batches(probe_batches(problem), inf, True), distributed=False)
    if problem.divisible:
        made.__dict__["divisible"] = True  # it was found on these very examples
    return made


def probe_batches(problem: Problem) -> list[Any]:
    """A few examples scattered over the data, or a smallest whole batch where examples see each other."""
    if problem.selected_from is not None:
        return probe_batches(problem.selected_from)
    few = problem._few if problem.divisible else None
    if few:
        return list(few)
    smallest = min(problem.batches, key=lambda batch: examples_in(batch) or 1, default=None)
    if problem.distributed:
        return same_everywhere([smallest] if smallest is not None else None) or []
    return [smallest]


def exact(problem: Problem, batches: list[Any]) -> Problem:
    """The problem in float64 where the model runs in it and answers in it; otherwise as it is. Found once."""
    if problem._wide is not None or problem.dtype == torch.float64:
        return problem._wide or problem
    wide = problem.cast(torch.float64)
    try:
        terms = wide.evaluate(batches[0], wide.parameters)
    except Exception:
        return problem
    dtype = terms.total.dtype if isinstance(terms, ScalarLoss) else terms.f.dtype
    if dtype != torch.float64:
        return problem
    if not is_large(problem):
        problem._wide = wide
    return wide


def without_values(problem: Problem, dtype: torch.dtype) -> Problem:
    """The problem in another type, for evaluations at parameters that are given: its own are zeros without memory."""
    empty = {
        name: torch.zeros((), dtype=dtype, device=t.device).expand(t.shape) for name, t in problem.parameters.items()
    }
    fixed = {name: cast(t, dtype) for name, t in problem._fixed.items()}
    made = problem._copy(parameters=empty, fixed=fixed, batch_dtype=dtype)
    made.__dict__["divisible"] = problem.divisible
    return made
