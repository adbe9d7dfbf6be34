"""What one gradient, product or pass takes on the user's own problem, and budgets as people write them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch

from .. import deadline
from ..arguments import as_float, shown
from ..curvature import GaussNewton, Hessian, Problem
from ..curvature.processes import same_everywhere
from ..errors import refuse
from ..operators import LinearOperator
from ..rng import Rng

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIDE = 512
PATIENCE = 5.0  # seconds of a first product, beyond which it is not repeated for a better price


@dataclass(frozen=True)
class Prices:
    """Seconds of a gradient over all data, of a product with H and with G once their graphs are there, and of one operation of
    a product of matrices."""

    gradient: float
    product: float
    gauss_newton: float
    flop: float = 0.0


def parse_budget(given: Any) -> float | None:
    """Seconds from 300, "300", "5m", "90s", "1.5h"; None and "none" are no budget."""
    if given is None or (isinstance(given, str) and given.strip().lower() == "none"):
        return None
    found = re.fullmatch(r"\s*([0-9.]+(?:e-?[0-9]+)?)\s*([a-z]*)\s*", given.lower()) if isinstance(given, str) else None
    try:
        number = as_float(given) if found is None else float(found[1])
    except ValueError:
        number = None
    unit = UNITS.get(found[2] or "s") if found is not None else 1.0
    if number is None or unit is None or not 0 < number * unit < math.inf:
        refuse("a budget must be a time", shown(given), "For example '5m', '90s', '1h', or None to run everything.")
    return number * unit


def measure_prices(problem: Problem, gradient: float, hessian: Hessian, G: GaussNewton | None) -> Prices:
    """A second product of each matrix is timed: the first also proves derivatives and builds graphs."""
    vector = hessian.layout.draw(Rng(0).child("prices"), 1, "normal", problem.dtype, problem.device)
    patience = math.inf if problem.distributed else PATIENCE  # processes multiply together
    times = [gradient, *(0.0 if op is None else _seconds(op, vector, patience) for op in (hessian, G))]
    times.append(_seconds_per_flop(problem))
    if problem.distributed:  # one plan for all processes
        times = same_everywhere(times)
    return Prices(*times)


def _seconds_per_flop(problem: Problem) -> float:
    """Of a product of matrices in the problem's type, from a small one."""
    a = torch.ones(_SIDE, _SIDE, dtype=problem.dtype, device=problem.device)
    times = []
    for _ in range(3):
        started = deadline.now()
        a @ a
        times.append(deadline.now() - started)
    return min(times) / (2.0 * _SIDE**3)


def _seconds(operator: LinearOperator, vector: torch.Tensor, patience: float) -> float:
    times = []
    for _ in range(3):
        started = deadline.now()
        operator.apply(vector)
        times.append(deadline.now() - started)
        if times[-1] > patience:
            break
    return min(times)
