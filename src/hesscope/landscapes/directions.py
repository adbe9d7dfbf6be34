"""Directions to look along: eigenvectors, steepest descent, an optimiser's step, other checkpoints, random filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..curvature import Problem
from ..errors import refuse
from ..linalg import eigenpairs
from ..operators import Counted
from ..operators.tensors import tensor_of
from ..results.spectra import Eigenpairs
from ..rng import Rng
from .filters import filter_normalised
from .losses_at import flat_parameters
from .optimiser_step import OptimizerStep

KNOWN = ("eigenvectors", "gradient", "random")
_SHORTEST = 1e-100  # a length whose square is a number
BETWEEN, STEP, FILTERS = (-0.25, 1.25), (-1.0, 3.0), (-1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Direction:
    """A flat float64 vector with its name. `window`: the t to draw; None: as far as the quadratic model reaches."""

    name: str
    kind: str
    vector: Tensor
    window: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Wanted:
    """What directions are made from: the problem, how many of a kind, which draws."""

    problem: Problem
    hessian: Counted
    count: int
    rng: Rng
    notes: list[str]


def directions_of(given: Any, wanted: Wanted) -> list[Direction]:
    """The directions that one entry of `along` names."""
    problem = wanted.problem
    if isinstance(given, str):
        return _by_name(given, wanted)
    if isinstance(given, Eigenpairs):
        return _eigenvectors(given, problem)
    if isinstance(given, OptimizerStep | torch.optim.Optimizer) or _is_optimizer_state(given):
        asked = given if isinstance(given, OptimizerStep) else OptimizerStep(given)
        name, step = asked.taken(problem)
        return [Direction(f"step of {name}", "step", _checked(step, problem, "the step"), STEP)]
    if isinstance(given, Problem):
        return [_towards(given, "the other problem", wanted)]
    if isinstance(given, Mapping):
        if given and all(isinstance(value, Problem) for value in given.values()):
            there = {label: other for label, other in given.items() if not _is_here(other, problem)}
            return [_towards(other, f"checkpoint {label}", wanted) for label, other in there.items()]
        return [_towards(problem.at(given), "the given state", wanted)]
    if isinstance(given, Tensor):
        return [Direction("given direction", "given", _checked(given, problem, "a direction"))]
    refuse(
        "a direction must be a name, an optimiser or its state, eigenpairs, a problem, a state dict or a flat vector",
        type(given).__name__,
        f"The names are {', '.join(KNOWN)}.",
    )


def _is_optimizer_state(given: Any) -> bool:
    """Whether a mapping is what `optimizer.state_dict()` returns, and not the state of a model."""
    return isinstance(given, Mapping) and "param_groups" in given and "state" in given


def _by_name(name: str, wanted: Wanted) -> list[Direction]:
    problem = wanted.problem
    if name == "eigenvectors":
        count = min(wanted.count, problem.space.size)
        return _eigenvectors(eigenpairs(wanted.hessian, count, rng=wanted.rng.child("eigenvectors")), problem)
    if name == "gradient":
        downhill = -problem.gradient().double()
        length = float(torch.linalg.vector_norm(downhill))
        if not length > 0:
            refuse("steepest descent needs a gradient", "one of zero", "Look along the eigenvectors instead.")
        return [Direction("steepest descent", "gradient", downhill / length)]
    if name == "random":
        drawn = [filter_normalised(problem, wanted.rng.child("filters", i)) for i in range(wanted.count)]
        return [Direction(f"random filters {i}", "random", vector, FILTERS) for i, vector in enumerate(drawn, 1)]
    refuse("a direction by name must be known", f"{name!r}", f"There are: {', '.join(KNOWN)}.")


def _eigenvectors(pairs: Eigenpairs, problem: Problem) -> list[Direction]:
    """Unit vectors, each turned downhill."""
    vectors = tensor_of(pairs.vectors).to(problem.device, torch.float64)
    if vectors.ndim != 2 or vectors.shape[0] != problem.space.size or vectors.shape[1] == 0:
        refuse(
            f"eigenpairs must come with vectors of {problem.space.size} numbers",
            f"a block of shape {tuple(vectors.shape)}",
            "Pass what hs.eigenpairs(hs.Hessian(problem)) returned.",
        )
    slopes = problem.gradient().double() @ vectors
    found = []
    for number, (value, slope) in enumerate(zip(pairs.values, slopes.tolist(), strict=False), 1):
        vector = _checked(vectors[:, number - 1], problem, "an eigenvector")
        turned = -vector if slope > 0 else vector
        name = f"eigenvector {number} (λ = {value:.4g})".replace("= -", "= −")
        found.append(Direction(name, "eigenvector", turned / torch.linalg.vector_norm(turned)))
    return found


def _is_here(other: Problem, problem: Problem) -> bool:
    """Whether a checkpoint is the problem's own, which is no way to go."""
    return other.space == problem.space and all(
        torch.equal(other.parameters[name], mine) for name, mine in problem.parameters.items()
    )


def _towards(other: Problem, name: str, wanted: Wanted) -> Direction:
    problem = wanted.problem
    if other.space != problem.space:
        refuse(
            "a checkpoint must have the parameters of the problem",
            f"{other.space.size:,} parameters in {len(other.space.names)} tensors for {name}",
            "Make both problems from the same model, with the same params=.",
        )
    fixed, mine = other._fixed, problem._fixed
    moved = [key for key, tensor in mine.items() if key in fixed and not torch.equal(tensor.cpu(), fixed[key].cpu())]
    if moved:
        wanted.notes.append(
            f"{len(moved)} tensors that are not selected (buffers, frozen parameters; first: {moved[0]}) differ at {name}; "
            f"along the line they stay as they are here, so its end is not the checkpoint itself, whose loss is "
            f"{other.loss_value():.6g}."
        )
    way = flat_parameters(other).to(problem.device) - flat_parameters(problem)
    return Direction(f"to {name}", "checkpoint", _checked(way, problem, f"the way to {name}"), BETWEEN)


def _checked(vector: Tensor, problem: Problem, what: str) -> Tensor:
    """The vector in float64, refused where it has the wrong size, is not finite or leads nowhere."""
    if tuple(vector.shape) != (problem.space.size,):
        refuse(
            f"{what} must be one flat vector of {problem.space.size} numbers",
            f"shape {tuple(vector.shape)}",
            "Pack tensors with problem.space.pack.",
        )
    if vector.is_complex() or not bool(torch.isfinite(vector).all()):
        refuse(f"{what} must be real and finite", "nan, inf or complex numbers", "Look at where it comes from.")
    flat = vector.detach().to(problem.device, torch.float64)
    if not float(torch.linalg.vector_norm(flat)) > _SHORTEST:
        refuse(f"{what} must lead somewhere", "zero everywhere, to rounding", "Are both ends the same?")
    return flat
