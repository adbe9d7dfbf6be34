"""hs.check: are the products of this model, on this data, on this torch, right; and which method is fastest?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf, nan

import torch
from torch import Tensor

from ..arguments import as_float, need_count, shown
from ..errors import refuse
from ..results.checks import MethodCheck, Verdict
from ..rng import Rng
from .data import examples_in
from .engines.backward import hessian_product, random_direction
from .engines.graphs import GradientGraphs
from .given_problem import need_problem
from .gradient_mode import differentiable
from .problem import Problem
from .proofs.derivatives import derivative_probe, prove_hessian

_EXAMPLES = 64
_SHARE = 16  # methods are timed on at most this part of the data
_TESTED = 2  # examples: symmetry and linearity are a matter of the operations, not of the data
_FASTER = 0.9  # leave the default only for a clear gain


def check(
    problem: Problem, examples: int = _EXAMPLES, *, half_within: float | None = None, rng: Rng | int | None = None
) -> Verdict:
    """Test symmetry, linearity and agreement with float64 central differences, on the user's own model and data.

    Costs at most ten gradients of the whole data: the tests run on a few examples in float64, the methods are timed on
    `examples` examples or a sixteenth of the data, and every method compares itself with double backward on all of it
    before it is used.
    With `half_within`, graphs that memory does not hold are kept with half of their digits, if that changes products by less
    than this part of the largest one.
    Remembers the verdict in the problem, so that operators made afterwards use the fastest method that is right, and
    results record it.
    """
    need_problem(problem)
    need_count("examples", examples)
    within = _checked_share(problem, half_within)
    source = Rng.of(rng).child("check")
    with differentiable():
        proof = prove_hessian(problem)
        tests = _Tests.of(problem, source) if proof.right else _Tests()
        unused = _unused(problem) if proof.right else ()
        methods = _methods(problem, examples, within is not None) if proof.right else ()
        method = _method(problem, methods, within)
    verdict = Verdict(
        passed=proof.right,
        method=method,
        agreement=proof.gap,
        symmetry=tests.symmetry,
        linearity=tests.linearity,
        noise_floor=tests.noise_floor,
        methods=methods,
        faulty_modules=proof.faulty_modules,
        unused_parameters=unused,
        notes=(proof.note.removeprefix("; "),) if proof.note else (),
    )
    problem.verdict = verdict
    return verdict


@dataclass(frozen=True)
class _Tests:
    """Properties of double backward on a few examples; not numbers where its products are wrong anyway."""

    symmetry: float = nan
    linearity: float = nan
    noise_floor: float = nan

    @staticmethod
    def of(problem: Problem, rng: Rng) -> _Tests:
        tried = derivative_probe(problem)
        whole = tried.at_its_values()
        probe = whole.subset(_TESTED) if problem.divisible else whole
        u, v = (random_direction(probe, rng.child(name)) for name in "uv")
        graphs = GradientGraphs(probe)
        with tried.widening:
            Hu, Hv, mixed = graphs.products(probe.space, probe.space, torch.stack([u, v, 2 * u - 3 * v]))
        symmetry = abs(float(u @ Hv - v @ Hu)) / max(float(u.norm() * Hv.norm()), 1e-300)
        linearity = _gap(mixed, 2 * Hu - 3 * Hv)
        rounded = hessian_product(problem, probe.batches, problem.parameters, u.to(problem.dtype))
        return _Tests(symmetry, linearity, max(_gap(rounded.to(Hu), Hu), torch.finfo(problem.dtype).eps))


def _checked_share(problem: Problem, given: float | None) -> float | None:
    if given is None:
        return None
    share = as_float(given)
    if share is None or not 0 < share < 1:
        refuse("half_within must lie between 0 and 1", shown(given), "1e-3 lets products be off by a thousandth.")
    if problem.distributed:
        refuse("graphs with half of their digits must be of one process", "several", "Leave half_within out.")
    return share


def _methods(problem: Problem, examples: int, half: bool) -> tuple[MethodCheck, ...]:
    """Double backward, and in which part of its time many vectors at once do the same; with `half`, graphs in half precision."""
    kept = MethodCheck("kept", 0.0, 1.0)
    if problem.distributed:
        return (kept,)  # processes that share the data must use the same method
    total = sum(examples_in(batch) or 1 for batch in problem.batches)
    sample = problem.subset(max(1, min(examples, total // _SHARE)))
    seconds = _seconds(GradientGraphs(sample), sample)
    together = GradientGraphs(sample, method="batched")
    batched = MethodCheck("batched", 0.0, _seconds(together, sample) / seconds)
    if not together.together:
        batched = MethodCheck("batched", inf, nan, "torch cannot take many vectors through this graph at once")
    if not half:
        return kept, batched
    error = GradientGraphs(problem, method="half").half_share
    rounded = _seconds(GradientGraphs(sample, method="half"), sample) / seconds
    return kept, batched, MethodCheck("half", error, rounded, "of the largest product; half of the memory")


def _method(problem: Problem, methods: tuple[MethodCheck, ...], within: float | None) -> str:
    """Half of the digits only where that was asked for, is near enough, and memory does not hold all of them."""
    near = any(m.name == "half" and within is not None and m.error <= within for m in methods)
    return "half" if near and not _all_fit(problem) else _fastest(methods)


def _all_fit(problem: Problem) -> bool:
    forecast = GradientGraphs(problem).forecast([examples_in(batch) or 1 for batch in problem.batches])
    return forecast.kept == forecast.total


def _fastest(methods: tuple[MethodCheck, ...]) -> str:
    able = [m for m in methods if m.error == 0.0 and m.relative_time < _FASTER]
    return min(able, key=lambda m: m.relative_time).name if able else "kept"


def _seconds(engine: GradientGraphs, problem: Problem, repeats: int = 2) -> float:
    """Of a product, in a block of two; the graph is built before."""
    block = torch.ones(2, problem.space.size, dtype=problem.dtype, device=problem.device)
    engine.products(problem.space, problem.space, block)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        engine.products(problem.space, problem.space, block)
        if problem.device.type == "cuda":
            torch.cuda.synchronize(problem.device)
        times.append(time.perf_counter() - start)
    return min(times) / len(block)


def _unused(problem: Problem) -> tuple[str, ...]:
    """Parameters that the loss depends on in no process."""
    mine = problem.unused
    used = torch.tensor([float(name not in mine) for name in problem.space.names], device=problem.device)
    return tuple(name for name, count in zip(problem.space.names, problem.all_sum(used), strict=True) if not count)


def _gap(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm()) / max(float(truth.norm()), 1e-300)
