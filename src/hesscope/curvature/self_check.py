"""hs.check: are the products of this model, on this data, on this torch, right; and which method is fastest?"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from ..errors import HesscopeError
from ..results.checks import TOLERANCE, MethodCheck, Verdict
from ..rng import Rng
from .differences import best_agreement
from .faulty_modules import find_faulty_modules
from .hessian import Hessian, Method
from .problem import Problem

_EXAMPLES = 64
_FASTER = 0.9  # leave the default only for a clear gain


def check(problem: Problem, examples: int = _EXAMPLES, rng: Rng | None = None) -> Verdict:
    """Test symmetry, linearity and agreement with float64 central differences, on the user's own model and data.

    Costs some dozens of gradients on `examples` examples. Remembers the verdict in the problem, so that operators made
    afterwards use the fastest method that is right, and results record it.
    """
    rng = (Rng(0) if rng is None else rng).child("check")
    small = problem.subset(examples)
    notes: list[str] = []
    try:
        wide = small.cast(torch.float64)
        wide.loss_value()
    except HesscopeError:
        raise
    except Exception as error:
        wide = small
        notes.append(f"the model does not run in float64 ({type(error).__name__}); differences are in its own type")
    u, v = (_direction(wide, rng.child(name)) for name in "uv")
    methods = tuple(_try(wide, small, name, u) for name in ("kept", "batched", "linearize"))
    kept = methods[0]
    right = [m for m in methods if m.right]
    tolerance = TOLERANCE if wide.dtype == torch.float64 else 2e-2
    passed = kept.error <= tolerance
    best = min(right, key=lambda m: m.relative_time, default=kept)
    # The traced method holds everything at once, so it is only for data whose graphs fit.
    fits = best.name != "linearize" or _kept_whole(problem)
    chosen = best.name if fits and best.relative_time < _FASTER else "kept"
    symmetry, linearity = _symmetry_and_linearity(wide, u, v) if passed else (float("nan"), float("nan"))
    verdict = Verdict(
        passed=passed,
        method=chosen,
        agreement=kept.error,
        symmetry=symmetry,
        linearity=linearity,
        noise_floor=_noise_floor(small, wide, u) if passed else float("nan"),
        methods=methods,
        faulty_modules=() if passed else find_faulty_modules(wide),
        unused_parameters=small.unused,
        notes=tuple(notes),
    )
    problem.verdict = verdict
    return verdict


def _direction(problem: Problem, rng: Rng) -> Tensor:
    """A random direction in which every tensor moves in proportion to its own size."""
    pieces = []
    for name, tensor in problem.parameters.items():
        noise = torch.randn(tensor.shape, generator=rng.child(name).torch(), dtype=torch.float64).to(problem.device)
        pieces.append((noise * max(float(tensor.double().norm()) / tensor.numel() ** 0.5, 1e-2)).reshape(-1))
    return torch.cat(pieces).to(problem.dtype)


def _gradient_at(problem: Problem, direction: Tensor, step: float) -> Tensor:
    moved = dict(zip(problem.space.names, problem.space.unpack(direction * step), strict=True))
    return problem.at({name: problem.parameters[name] + moved[name] for name in moved}).gradient()


def _try(wide: Problem, small: Problem, method: Method, u: Tensor) -> MethodCheck:
    try:
        block = torch.stack([u, u], 1)
        # Twice the same vector, in one block: a method that changes its own constants gives two answers.
        first, second = (Hessian(wide, method=method) @ block).T
        error = best_agreement(lambda step: _gradient_at(wide, u, step), first, scale=1.0)
        spread = float((first - second).norm() / first.norm()) if float(first.norm()) else 0.0
        return MethodCheck(method, max(error, spread), _seconds(small, method))
    except Exception as error:
        return MethodCheck(method, float("inf"), float("inf"), f"{type(error).__name__}: {error}")


def _seconds(problem: Problem, method: Method) -> float:
    op = Hessian(problem, method=method)
    block = torch.ones(problem.space.size, 4, dtype=problem.dtype, device=problem.device)
    op @ block  # builds the graph
    times = []
    for _ in range(3):
        start = time.perf_counter()
        op @ block
        if problem.device.type == "cuda":
            torch.cuda.synchronize(problem.device)
        times.append(time.perf_counter() - start)
    return min(times)


def _kept_whole(problem: Problem) -> bool:
    op = Hessian(problem, method="kept")
    engine = op._engine
    engine.build()
    batches = sum(1 for _ in problem.batches)
    return getattr(engine, "kept_batches", 0) == batches


def _symmetry_and_linearity(problem: Problem, u: Tensor, v: Tensor) -> tuple[float, float]:
    H = Hessian(problem, method="kept")
    Hu, Hv, mixed = (H @ torch.stack([u, v, 2 * u - 3 * v], 1)).T
    size = max(float(u.norm() * Hv.norm()), 1e-300)
    symmetry = abs(float(u @ Hv - v @ Hu)) / size
    linearity = float((mixed - (2 * Hu - 3 * Hv)).norm()) / max(float(mixed.norm()), 1e-300)
    return symmetry, linearity


def _noise_floor(small: Problem, wide: Problem, u: Tensor) -> float:
    """|H v (own type) - H v (float64)| / |H v|: what rounding alone does to a product."""
    if small.dtype == wide.dtype:
        return float(torch.finfo(small.dtype).eps)
    truth = Hessian(wide, method="kept") @ u
    own = Hessian(small, method="kept") @ u.to(small.dtype)
    return float((own.double() - truth).norm() / max(float(truth.norm()), 1e-300))
