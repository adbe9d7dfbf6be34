"""hs.plan: bytes, products and seconds before running."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from ...arguments import need_count
from ...errors import HesscopeError, refuse
from ...linalg import diagonal, eigenpairs, solve, spectral_density, trace
from ...linalg.density.slq import QuadratureLimits, vectors_of
from ...linalg.eigensolver import basis_limit
from ...linalg.krylov.run import Goal
from ...linalg.memory import vectors_that_fit
from ...memory import free_bytes
from ...operators.autocast import own_types
from ...results.checks import CostPlan
from ..data import Batches, examples_in, first_examples
from ..engines.graphs import GradientGraphs
from ..given_problem import need_problem
from ..gradient_mode import differentiable
from ..problem import Problem
from ..processes import from_every
from .overheads import orthogonal_seconds, proof_bytes, proof_seconds
from .rehearsal import rehearse

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
_ORTHOGONAL = ("eigenpairs", "spectral_density", "trace", "diagonal")  # tasks whose vectors are kept so
_OWN_VECTORS = 4  # sums of gradients, a product and its pieces
_HEAP = 1.25  # the C library's heap is full of holes: measured 1.0 to 1.4 times what is alive in it
_READ = 1e9  # bytes of a file in a second
_PATIENCE = 1.0  # seconds that timing one product may take
_FROM_LAYERS = "Exact, from per-example gradients: one backward pass per class."
_SMALL = 200  # up to this size every task multiplies the whole matrix out


@own_types()
def plan(problem: Problem, task: Task = "eigenpairs", **settings: Any) -> CostPlan:
    """Bytes, products and seconds of `hs.<task>(hs.Hessian(problem), **settings)`, from one product timed here.

    Products are those that the same run takes on an eighth of the examples, where that is a matter of seconds. One is
    timed on the first batch, or on as much of it as takes about a second; the proof of derivatives, building graphs
    and orthogonal vectors are added. `bytes` is what the run holds at its peak: the proof, or graphs that are kept, a
    graph that is rebuilt and vectors; the data and the model are there before.
    """
    need_problem(problem)
    _check(task, settings)
    return _of_all_shares(problem, task, settings) if problem.distributed else _plan(problem, task, settings)


def _of_all_shares(problem: Problem, task: str, settings: dict[str, Any]) -> CostPlan:
    """The plan of the process that takes longest, in every process.

    Each makes its own, alone: shares may be empty, and clocks decide how often something is timed.
    """
    alone = problem._copy(distributed=False)
    own: CostPlan | str | None = None
    if next(iter(alone.batches), None) is not None:
        try:
            own = _plan(alone, task, settings, rehearsed=False)
        except HesscopeError as error:
            own = str(error)
    plans = from_every(own)
    for found in plans:
        if isinstance(found, str):
            raise HesscopeError(found)
    made = [found for found in plans if isinstance(found, CostPlan)]
    if not made:
        refuse(
            "a plan needs examples in some process", "none in all of them", "Give each process its part of the data."
        )
    slowest = max(made, key=lambda one: one.seconds)
    return replace(
        slowest,
        bytes=max(one.bytes for one in made),
        kept=min(one.kept for one in made),
        note=f"{slowest.note} Of the slowest of {len(plans)} processes.",
    )


def _plan(problem: Problem, task: str, settings: dict[str, Any], rehearsed: bool = True) -> CostPlan:
    products, vectors, note = _needs(problem, task, settings)
    batches = list(problem.batches) if problem.batches.held else [next(iter(problem.batches))]
    counts = [examples_in(batch) or 1 for batch in batches]
    gradient = _gradient_seconds(problem, batches[0]) * sum(counts) if batches else 0.0
    engine = GradientGraphs(problem)
    graphs = engine.forecast(counts)
    price = _price(problem, batches[0], gradient / max(sum(counts), 1)) if batches else _Price((0.0, 0.0), (0.0, 0.0))
    (held, built), share = graphs.runs, graphs.share * sum(counts)
    product = price.kept(held, share) + price.built(built, sum(counts) - share) + graphs.in_file / _READ
    tried, layered = None, note == _FROM_LAYERS
    function = _FUNCTIONS[task]
    if rehearsed and function is not None and batches and not layered and not note.startswith("Exact"):
        likely = products

        def seconds_with(examples: int) -> float:
            return likely * price.kept(1, examples) + orthogonal_seconds(problem, likely, vectors)

        tried = rehearse(problem, function, settings, seconds_with)
    if tried is not None:
        vectors += (tried.products - products) if task == "eigenpairs" else 0
        products, note = tried.products, f"As many as a run on {tried.examples} examples took."
    most = settings.get("max_products")
    if most is not None:
        products, vectors = min(products, most), min(vectors, most + int(settings.get("k", 1)))
    beside = max(0.0, price.built(held, share) - price.kept(held, share))  # of the first product
    beside += proof_seconds(problem, batches[0]) if batches else 0.0
    if tried is not None:
        # What its steps took besides products: vectors, small matrices, our own code.
        beside += max(0.0, tried.seconds - tried.products * price.kept(1, tried.examples)) * products / tried.products
    elif task in _ORTHOGONAL:
        beside += orthogonal_seconds(problem, products, vectors)
    vector = problem.space.size * (torch.finfo(problem.dtype).bits // 8)
    vectors, note = _kept_vectors(problem, task, settings, vectors, note)
    basis = vectors * vector
    proof = proof_bytes(problem, batches[0], engine.size.of) if batches else 0
    total = max(proof, graphs.kept + graphs.working + basis + _OWN_VECTORS * vector)
    total = int(total * (_HEAP if problem.device.type == "cpu" else 1.0))
    if not problem.batches.held:
        note += " The data is streamed, so times are per first batch."
    if graphs.in_file:
        note += f" Memory does not hold all graphs: {graphs.in_file / 1e9:.1f} GB of them go to a file."
    free = free_bytes(problem.device)
    if total > 0.9 * free:
        note += f" {_way_out(task, total, free, graphs.kept + graphs.working, basis)}"
    # Of a gradient, the forward pass is a third and so is the backward pass to activations; entries are another.
    seconds = (1 + products * (1 + (task == "diagonal"))) / 3 * gradient if layered else products * product + beside
    return CostPlan(task, products, seconds, total, graphs.total, basis, gradient, graphs.share, note.strip())


def _check(task: str, settings: dict[str, Any]) -> None:
    """Refuse tasks and settings that there are not."""
    if task not in _FUNCTIONS:
        refuse("the task must be known", f"{task!r}", f"Use one of {', '.join(_FUNCTIONS)}.")
    function = _FUNCTIONS[task]
    known = [*inspect.signature(function).parameters][1:] if function else []
    for name in settings:
        if name not in known:
            refuse(f"a setting must be one of {task}", f"{name!r}", f"There are: {', '.join(known) or 'none'}.")
    for name in ("k", "probes", "steps", *(("max_products",) if settings.get("max_products") is not None else ())):
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
    much = "more than" if total > free else "nearly all of"
    return f"{total / 1e9:.1f} GB are {much} the {free / 1e9:.1f} GB that are free: {do}."


@dataclass(frozen=True)
class _Price:
    """Seconds of a product with a graph that is kept, and with one that is built: (for each graph, for each example)."""

    of_kept: tuple[float, float]
    of_built: tuple[float, float]

    def kept(self, graphs: int, examples: float) -> float:
        return self.of_kept[0] * graphs + self.of_kept[1] * examples

    def built(self, graphs: int, examples: float) -> float:
        return self.of_built[0] * graphs + self.of_built[1] * examples


def _price(problem: Problem, batch: Any, gradient: float) -> _Price:
    """Timed on this machine, on so many examples as are affordable and on half of them."""
    size = examples_in(batch) or 1
    affordable = max(2, int(_PATIENCE / max(18 * gradient, 1e-12)))
    count = min(size, affordable) if problem.divisible else size
    whole = _product_seconds(problem, first_examples(batch, count))
    if count < 2 or not problem.divisible:
        kept, built = ((0.0, seconds / count) for seconds in whole)
        return _Price(kept, built)
    half = _product_seconds(problem, first_examples(batch, count // 2))
    kept, built = (_line(few, all_, count // 2, count) for few, all_ in zip(half, whole, strict=True))
    return _Price(kept, built)


def _line(few: float, many: float, fewer: int, more: int) -> tuple[float, float]:
    """Seconds at 0 examples and for each one more; clocks are rough, so that at least a quarter is for the examples."""
    slope = max((many - few) / (more - fewer), 0.25 * many / more)
    slope = min(slope, many / more)
    return many - slope * more, slope


def _product_seconds(problem: Problem, batch: Any) -> tuple[float, float]:
    """Of one product with a kept graph, and of one that builds it anew."""
    alone = problem._copy(batches=Batches([batch], float("inf"), True))
    vector = torch.ones(1, problem.space.size, dtype=problem.dtype, device=problem.device)
    building: list[float] = []
    again: list[float] = []
    with differentiable():
        # Whatever runs for the first time takes longer, but for that which takes seconds.
        while len(building) < 2 and sum(building) < _PATIENCE:
            graphs = GradientGraphs(alone)
            for times in (building, again, again):
                if sum(again) < _PATIENCE:
                    start = time.perf_counter()
                    graphs.products(problem.space, problem.space, vector)
                    times.append(time.perf_counter() - start)
            del graphs
    # Where the graph of this batch alone does not fit, every product builds it.
    return min(again), min(building)


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
        fixed = settings.get("tol") == 0 or settings.get("method") == "chebyshev"
        if n <= min(2000, total) if fixed else n <= min(480, 0.6 * total):
            return n, n, "Exact: the whole matrix."
        # Runs that stop by their error take about a quarter of what they may, measured on trained networks.
        likely = min(n, max(2 * int(settings.get("steps", 80)), total // 4))
        if fixed:
            return total, int(settings.get("steps", 80)), "Exactly so many, as asked for."
        return likely, int(settings.get("steps", 80)), f"At most {min(n, total)}: runs stop early."
    if task in ("trace", "diagonal"):
        columns = _columns_from_layers(problem) if settings.get("method", "auto") == "auto" else 0
        if 0 < columns < n:
            return columns, 2, _FROM_LAYERS
        return min(n, 200), min(n, 100), "By random probes until the tolerance is met."
    if task == "dense":
        return n, n, ""
    if task == "solve":
        return min(n, 100), 4, "Depends on the conditioning; damping helps."
    raise AssertionError(task)


def _kept_vectors(problem: Problem, task: str, settings: dict[str, Any], vectors: int, note: str) -> tuple[int, str]:
    """How many of so many vectors a run holds in memory, by its own rules."""
    if task == "eigenpairs":
        goal = Goal(int(settings.get("k", 10)), settings.get("which", "largest"), 1.0)
        return min(vectors, basis_limit(problem.as_operator(), goal, 1, settings.get("max_basis"))[0]), note
    if task == "spectral_density" and settings.get("method") != "chebyshev":
        limits = QuadratureLimits(1, int(settings.get("steps", 80)), None, True)
        if vectors_that_fit(problem.as_operator()) < vectors_of(limits):
            return 3, f"{note} Memory does not hold its vectors: they go to a file, where a disk has room."
    return vectors, note


def _columns_from_layers(problem: Problem) -> int:
    """Passes of an exact trace or diagonal from per-example gradients; 0 where products are needed, too."""
    from ...layers.example_factors import row_count, served
    from ...layers.facts import facts_of

    if row_count(problem) is None or not served(problem).issuperset(problem.space.names):
        return 0
    return facts_of(problem).columns


def _gradient_seconds(problem: Problem, batch: Any) -> float:
    """Of one example, on a few of them."""
    few = first_examples(batch, _PROBE) if problem.divisible else batch
    leaves = problem.leaves()
    times: list[float] = []
    while len(times) < 3 and sum(times) < _PATIENCE:
        start = time.perf_counter()
        problem.batch_gradient(few, leaves, create_graph=False)
        times.append(time.perf_counter() - start)
    return min(times) / (examples_in(few) or 1)
