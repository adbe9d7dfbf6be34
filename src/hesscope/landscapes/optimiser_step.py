"""The next step of a torch optimiser, computed on copies of its state and of its parameters."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..curvature import Problem
from ..errors import refuse
from ..step_stability.line_search import real_step
from ..step_stability.matching import members_of, unwrapped
from .losses_at import flat_parameters


@dataclass(frozen=True, eq=False)
class OptimizerStep:
    """The step of a torch optimiser, or of its `state_dict()`; `kind` names the class of a state that does not tell."""

    given: Any
    kind: str | None = None

    def taken(self, problem: Problem) -> tuple[str, Tensor]:
        """The optimiser's name and θ' − θ of its next step, in float64."""
        plain = unwrapped(self.given)
        if isinstance(plain, Optimizer):
            return type(plain).__name__, next_step(problem, plain)
        members = members_of(problem, plain, None, self.kind)
        used = dict.fromkeys(member.kind.name for member in members.values())
        return " + ".join(used), real_step(problem, members, problem.gradient()).double()


def next_step(problem: Problem, optimiser: Optimizer) -> Tensor:
    """θ' − θ in float64: what `optimiser.step()` would do after a backward pass over all of the problem's data.

    Its rates, momenta and moments are the real ones; hooks, schedules and clipping of the training loop are not run.
    """
    names = _names(problem, optimiser)
    _refuse_unusable(problem, optimiser, set(names))
    copied = copy.deepcopy(optimiser)  # only its state, defaults and groups: no hooks and no wrapped step
    gradient = dict(zip(problem.space.names, problem.space.unpack(problem.gradient()), strict=True))
    parameters = _parameters(copied)
    for name, parameter in zip(names, parameters, strict=True):
        slope = None if name is None else gradient.get(name)
        parameter.grad = None if slope is None else slope.to(parameter.device, parameter.dtype).clone()
    before = [parameter.detach().double().clone() for parameter in parameters]
    _step(copied)
    moved = {name: after.detach().double() - old for name, after, old in zip(names, parameters, before, strict=True)}
    for name in problem.space.names:
        if not bool(torch.isfinite(moved[name]).all()):
            refuse("the optimiser's step must be finite", f"nan or inf in {name!r}", "Its rate or state has diverged.")
    return problem.space.pack([moved[name] for name in problem.space.names], flat_parameters(problem))


def _step(optimiser: Optimizer) -> None:
    # A differentiable or captured step would want graphs that are not there; the numbers are the same without.
    for group in optimiser.param_groups:
        group.update({key: False for key in ("differentiable", "capturable") if key in group})
    try:
        with torch.enable_grad():
            optimiser.step()
    except (TypeError, RuntimeError, ValueError) as error:
        refuse(
            "an optimiser must step from gradients alone",
            f"{type(optimiser).__name__}: {str(error)[:200]}",
            "For one that needs a closure or sparse gradients, pass its direction as a flat vector.",
        )


def _parameters(optimiser: Optimizer) -> list[Any]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


def _names(problem: Problem, optimiser: Optimizer) -> list[str | None]:
    """The name in the problem of every parameter of the optimiser, in its order; None for those it does not know."""
    own = {id(reference()): name for name, reference in problem.origin.items() if reference() is not None}
    found = []
    for parameter in _parameters(optimiser):
        name = own.get(id(parameter))
        mine = None if name is None else problem.parameters.get(name)
        if mine is not None and not torch.equal(parameter.detach().to(mine), mine):
            refuse(
                "the problem must be at the parameters that the optimiser holds now",
                f"another value of {name!r}",
                "Make the problem after the last step of training.",
            )
        found.append(name)
    return found


def _refuse_unusable(problem: Problem, optimiser: Optimizer, held: set[str | None]) -> None:
    missing = [name for name in problem.space.names if name not in held]
    if len(missing) == len(problem.space.names):
        refuse(
            "the optimiser must hold the parameters of the model that the problem was made of",
            f"{type(optimiser).__name__} of other tensors",
            "Make the problem from the trained model itself.",
        )
    if missing:
        refuse(
            "the optimiser must move every parameter of the problem",
            f"none of its groups has {', '.join(missing[:4])}{', ...' if len(missing) > 4 else ''}",
            "Leave them out with problem.select(...), or add a group.",
        )
    for parameter, state in optimiser.state.items():
        for key, value in state.items() if isinstance(state, dict) else ():
            if isinstance(value, Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
                shape = tuple(parameter.shape)
                refuse(
                    "the optimiser's state must be finite",
                    f"nan or inf in {key!r} of a parameter of shape {shape}",
                    "Load a checkpoint from before it diverged.",
                )
