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
from ..memory import free_bytes
from ..results.checks import CostPlan
from .data import Batches, examples_in, first_examples
from .engines.graphs import GradientGraphs
from .given_problem import need_problem
from .gradient_mode import differentiable
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
_PATIENCE = 1.0  # seconds that timing one product may take
_SMALL = 200  # up to this size every task multiplies the whole matrix out


def plan(problem: Problem, task: Task = "eigenpairs", **settings: Any) -> CostPlan:
    """Bytes, products and seconds of `hs.<task>(hs.Hessian(problem), **settings)`, from one product timed here.

    It is timed on the first batch, or on as much of it as takes about a second. `bytes` is what the run adds at its peak: graphs that are kept, a graph that is rebuilt, vectors; the data and the
    model are there before.
    """
    need_problem(problem)
    _check(task, settings)
    products, vectors, note = _needs(problem, task, settings)
    batches = list(problem.batches) if problem.batches.held else [next(iter(problem.batches))]
    counts = [examples_in(batch) or 1 for batch in batches]
    gradient = _gradient_seconds(problem, batches[0]) * sum(counts) if batches else 0.0
    graphs = GradientGraphs(problem).forecast(counts)
    kept, rebuilt = _product_seconds(problem, batches[0], gradient / max(sum(counts), 1)) if batches else (0.0, 0.0)
    product = sum(counts) * (kept * graphs.share + rebuilt * (1 - graphs.share))
    vector = problem.space.size * (torch.finfo(problem.dtype).bits // 8)
    basis = vectors * vector
    total = graphs.kept + graphs.working + basis + _OWN_VECTORS * vector
    if not problem.batches.held:
        note += " The data is streamed, so times are per first batch."
    free = free_bytes(problem.device)
    if total > 0.9 * free:
        note += f" {_way_out(task, total, free, graphs.kept + graphs.working, basis)}"
    return CostPlan(
        task, products, products * product, total, graphs.total, basis, gradient, graphs.share, note.strip()
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


def _way_out(task: str, total: float, free: float, graphs: float, basis: float) -> str:
    """What to do where memory does not suffice; the larger part decides."""
    if graphs >= basis:
        do = "pass Problem.of(..., memory='2GB') so that graphs are rebuilt, a smaller batch_size, or problem.subset(...)"
    elif task == "eigenpairs":
        do = "pass max_basis= a few times k, which restarts instead of keeping every vector"
    elif task == "dense":
        do = "take a block: problem.select(...), or ask for a spectrum or a trace instead"
    else:
        do = "pass method='chebyshev' or method='hutchinson', which keep a few vectors only"
    return f"{total / 1e9:.1f} GB are more than the {free / 1e9:.1f} GB that are free: {do}."


def _product_seconds(problem: Problem, batch: Any, gradient: float) -> tuple[float, float]:
    """Seconds per example of one product with a kept graph, and of one that builds it anew; timed on this machine."""
    size = examples_in(batch) or 1
    affordable = max(1, int(_PATIENCE / max(8 * gradient, 1e-12)))
    few = first_examples(batch, affordable) if affordable < size and problem.divisible else batch
    alone = problem._copy(batches=Batches([few], float("inf"), True))
    vector = torch.ones(1, problem.space.size, dtype=problem.dtype, device=problem.device)
    graphs, times = GradientGraphs(alone), []
    with differentiable():
        for _ in range(3):
            start = time.perf_counter()
            graphs.products(problem.space, problem.space, vector)
            times.append(time.perf_counter() - start)
    count = examples_in(few) or 1
    # Where the graph of this batch alone does not fit, every product builds it.
    return min(times[1:]) / count, times[0] / count


def _needs(problem: Problem, task: str, settings: dict[str, Any]) -> tuple[int, int, str]:
    n = problem.space.size
    if n <= _SMALL and task != "solve":
        return n, n, "Exact: the whole matrix."
    if task == "eigenpairs":
        k = int(settings.get("k", 10)) * (2 if settings.get("which") == "both" else 1)
        if n <= 4 * k:
            return n, n, "Exact: the whole matrix."
        steps = min(n, 2 * k + 20)
        return steps, steps + k, "Products grow where eigenvalues are close together."
    if task == "spectral_density":
        total = int(settings.get("probes", 10)) * int(settings.get("steps", 80))
        if n <= min(480, 0.6 * total):
            return n, n, "Exact: the whole matrix."
        fixed = settings.get("tol") == 0 or settings.get("method") == "chebyshev"
        # Runs that stop by their error take about a quarter of what they may, measured on trained networks.
        likely = total if fixed else min(n, max(2 * int(settings.get("steps", 80)), total // 4))
        return likely, int(settings.get("steps", 80)), "" if fixed else f"At most {min(n, total)}: runs stop early."
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
