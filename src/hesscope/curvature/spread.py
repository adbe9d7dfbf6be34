"""A problem of a sharded model: each process holds a part of the parameters, until someone asks for them whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from ..memory import give_back
from .data import to_device
from .models.evaluation import value_of
from .models.parts import Exchange
from .models.spreading import SpreadEvaluation, can_spread, empty, spread_evaluation
from .proofs.determinism import same_value
from .proofs.probing import probe_batches

if TYPE_CHECKING:
    from .problem import Problem

_FACTS = ("divisible", "_few", "batch_values", "totals")


@dataclass(frozen=True)
class Spread:
    """The parts of this process, the model that reads them, and the buffers, which everyone has."""

    exchange: Exchange
    evaluation: SpreadEvaluation
    buffers: dict[str, Tensor]


def spread_out(problem: Problem) -> None:
    """Keep only a part of every parameter in each process, where the network gives the same so; in all of them or none."""
    _ = problem.divisible, problem.totals
    if problem._anywhere(not can_spread(problem._evaluation)):
        return
    batch = probe_batches(problem)[0]
    whole = problem.value_of(batch)[0]
    learned = {name for name, _ in problem.model.named_parameters()}
    frozen = {name: tensor for name, tensor in problem._fixed.items() if name in learned}
    exchange = Exchange(problem.parameters, frozen)
    evaluation = spread_evaluation(problem._evaluation, exchange)
    spread = Spread(exchange, evaluation, {n: t for n, t in problem._fixed.items() if n not in learned})
    try:
        same = same_value(whole, value_of(evaluation.at(to_device(batch, problem.device), {})))
    except Exception:
        same = False
    if problem._anywhere(not same):
        return
    empty(problem._evaluation)
    problem._given, problem._made = problem._evaluation, None
    problem.spread, problem._tensors = spread, ({}, {})
    give_back()


def gathered(problem: Problem) -> Problem:
    """The same problem with whole parameters in every process, for as long as it is held."""
    assert problem.spread is not None
    exchange = problem.spread.exchange
    whole = {name: exchange.gathered(name, part) for name, part in exchange.parts.items()}
    parameters = {name: whole.pop(name) for name in problem.space.names}
    made = type(problem)(
        problem._given, problem.batches, problem.space, parameters, {**whole, **problem.spread.buffers},
        memory=problem.memory_budget.limit, distributed=True, batch_dtype=problem._batch_dtype, origin=problem.origin,
    )  # fmt: skip
    made.__dict__.update({name: problem.__dict__[name] for name in _FACTS if name in problem.__dict__})
    made.proofs, made.verdict = problem.proofs, problem.verdict
    return made


def whole_tensors(problem: Problem) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters of a problem and its other tensors; those of a spread one are gathered, for good."""
    if problem.spread is not None:
        made = gathered(problem)
        problem.spread, problem._tensors = None, made._tensors
    return problem._tensors
