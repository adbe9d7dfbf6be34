"""hs.plan: bytes, products and seconds before running."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any, Literal

import torch

from ..arguments import need_count
from ..errors import refuse
from ..linalg import diagonal, eigenpairs, solve, spectral_density, trace
from ..results.checks import CostPlan
from .data import examples_in, first_examples
from .engines.graphs import GradientGraphs
from .given_problem import need_problem
from .problem import Problem

Task = Literal["eigenpairs", "spectral_density", "trace", "diagonal", "dense", "solve"]
_FUNCTIONS: dict[str, Callable[..., Any] | None] = {
    "eigenpairs": eigenpairs,
    "spectral_density": spectral_density,
    "trace": trace,
    "diagonal": diagonal,
    "dense": None,
    "solve": solve,
}
_PROBE = 64
_OWN_VECTORS = 4  # sums of gradients, a product and its pieces
KEPT, REBUILT = 1.6, 3.0  # cost of a product in gradients, with the graph kept and without


def plan(problem: Problem, task: Task = "eigenpairs", **settings: Any) -> CostPlan:
    """Bytes, products and seconds of `hs.<task>(hs.Hessian(problem), **settings)`, from a gradient on a few examples.

    `bytes` is what the run adds at its peak: graphs that are kept, a graph that is rebuilt, vectors; the data and the
    model are there before.
    """
    need_problem(problem)
    _check(task, settings)
    products, vectors, note = _needs(problem, task, settings)
    batches = list(problem.batches) if problem.batches.held else [next(iter(problem.batches))]
    counts = [examples_in(batch) or 1 for batch in batches]
    gradient = _gradient_seconds(problem, batches[0]) * sum(counts) if batches else 0.0
    graphs = GradientGraphs(problem).forecast(counts)
    cost = KEPT * graphs.share + REBUILT * (1 - graphs.share)
    vector = problem.space.size * (torch.finfo(problem.dtype).bits // 8)
    basis = vectors * vector
    total = graphs.kept + graphs.working + basis + _OWN_VECTORS * vector
    if not problem.batches.held:
        note += " The data is streamed, so times are per first batch."
    return CostPlan(
        task, products, products * cost * gradient, total, graphs.total, basis, gradient, graphs.share, note.strip()
    )


def _check(task: str, settings: dict[str, Any]) -> None:
    """Refuse tasks and settings that there are not."""
    if task not in _FUNCTIONS:
        refuse("the task must be known", f"{task!r}", f"Use one of {', '.join(_FUNCTIONS)}.")
    function = _FUNCTIONS[task]
    known = [*inspect.signature(function).parameters][1:] if function else []
    for name in settings:
        if name not in known:
            refuse(f"a setting must be one of {task}", f"{name!r}", f"There are: {', '.join(known) or 'none'}.")
    for name in ("k", "probes", "steps"):
        need_count(name, settings.get(name, 1))


def _needs(problem: Problem, task: str, settings: dict[str, Any]) -> tuple[int, int, str]:
    n = problem.space.size
    if task == "eigenpairs":
        k = int(settings.get("k", 10)) * (2 if settings.get("which") == "both" else 1)
        steps = min(n, 2 * k + 12)
        return steps, steps + k, "Products grow where eigenvalues are close together."
    if task == "spectral_density":
        total = int(settings.get("probes", 10)) * int(settings.get("steps", 80))
        return total, int(settings.get("steps", 80)), "At most: probes and steps stop early."
    if task in ("trace", "diagonal"):
        from ..layers import facts_of

        facts = facts_of(problem) if problem.has_outputs else None
        if facts is not None and facts.columns and len(facts.covered(problem.space.names)) == len(problem.space.names):
            return 10, 2, "From per-example gradients, about one backward per class."
        return min(n, 200), min(n, 100), "By random probes until the tolerance is met."
    if task == "dense":
        return n, n, ""
    if task == "solve":
        return min(n, 100), 4, "Depends on the conditioning; damping helps."
    raise AssertionError(task)


def _gradient_seconds(problem: Problem, batch: Any) -> float:
    """Of one example, on a few of them."""
    few = first_examples(batch, _PROBE) if problem.divisible else batch
    leaves = problem.leaves()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        problem.batch_gradient(few, leaves, create_graph=False)
        times.append(time.perf_counter() - start)
    return min(times) / (examples_in(few) or 1)
