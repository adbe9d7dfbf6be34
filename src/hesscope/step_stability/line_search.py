"""Critical sharpness: how far the optimiser's own next step can be stretched before the loss rises, by forward passes."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, optim

from ..curvature import Problem
from ..curvature.models.evaluation import value_of
from ..errors import refuse
from ..results.stability import CriticalStep
from .matching import Member

LONGEST = 2.0**24
SHORTEST = 2.0**-24


def real_step(problem: Problem, members: dict[str, Member], gradient: Tensor) -> Tensor:
    """What the optimiser would add to the parameters now, at this gradient: taken by a copy of it, on copies of them."""
    found: dict[str, Tensor] = {}
    pieces = dict(zip(problem.space.names, problem.space.unpack(gradient), strict=True))
    for name, member in members.items():
        before = problem.parameters[name].detach()
        moved = before.clone().requires_grad_()
        moved.grad = pieces[name].to(moved.dtype).clone()
        settings = {key: value for key, value in member.group.items() if key not in ("params", "param_names")}
        settings |= {key: False for key in ("fused", "foreach", "capturable", "differentiable") if key in settings}
        taken: Any = getattr(optim, member.kind.name)([{"params": [moved], **settings}])
        taken.state[moved] = {key: _copied(key, value, before.device) for key, value in member.state.items()}
        taken.step()
        found[name] = (moved.detach() - before).reshape(-1)
    step = torch.cat([found[name] for name in problem.space.names]).to(problem.dtype)
    if not bool(torch.isfinite(step).all()):
        refuse("the optimiser's step must be finite", "NaN or infinity", "The run has diverged: load a checkpoint.")
    return step


def _copied(key: str, value: Any, device: torch.device) -> Any:
    """A copy of one entry of a state; counts that an older torch saved as plain numbers become tensors, as it wants them."""
    if isinstance(value, Tensor):
        return value.detach().clone().to(device)
    if key in ("step", "mu_product") and isinstance(value, int | float):
        return torch.tensor(float(value), dtype=torch.float32, device="cpu")
    return copy.copy(value)


def critical_step(problem: Problem, members: dict[str, Member], rate: float, tol: float = 0.02) -> CriticalStep:
    """The smallest multiple of the real next step at which the loss is above where it is now, to a factor of 1 + tol.

    Costs one gradient and some ten forward passes of all data; no second derivative.
    """
    gradient = problem.gradient()
    step = real_step(problem, members, gradient)
    slope = float(gradient.double() @ step.double())
    here = _loss_at(problem, step, 0.0)
    if not slope < 0:
        return CriticalStep(rate, math.nan, math.nan, slope, here, 1)
    passes = 1

    def rises(factor: float) -> bool:
        nonlocal passes
        passes += 1
        return not _loss_at(problem, step, factor) <= here

    low, high = 0.0, 1.0
    if rises(1.0):
        low = 0.5
        while low > SHORTEST and rises(low):
            low, high = low / 2, low
    else:
        low, high = 1.0, 2.0
        while high < LONGEST and not rises(high):
            low, high = high, 2 * high
    if high >= LONGEST:
        return CriticalStep(rate, low * rate, math.inf, slope, here, passes)
    while high > (1 + tol) * low and low > SHORTEST:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rises(middle) else (middle, high)
    return CriticalStep(rate, low * rate, high * rate, slope, here, passes)


@torch.no_grad()
def _loss_at(problem: Problem, step: Tensor, factor: float) -> float:
    moved = {
        name: (tensor.detach() + factor * piece.to(tensor.dtype)) if factor else tensor.detach()
        for (name, tensor), piece in zip(problem.parameters.items(), problem.space.unpack(step), strict=True)
    }
    total = torch.zeros((), dtype=torch.float64, device=problem.device)
    for batch in problem.batches:
        total += value_of(problem.evaluate(batch, moved))
    return float(problem.all_sum(total)) * problem.scale
