"""What output Hessians cost, and when random output directions take the place of every one."""

from __future__ import annotations

from typing import Literal

from ..arguments import need_count
from ..curvature import Problem
from ..errors import refuse
from ..layers import LayerFacts, facts_of

Directions = int | Literal["auto", "all"]
USUAL = 16
_MOST_PASSES = 1024
_MOST_FLOPS = 1e11  # a few seconds


def need_directions(directions: Directions) -> None:
    """Refuse what is neither a number of directions nor a word for it."""
    if directions not in ("auto", "all"):
        need_count("directions", directions, 2, "Two halves of them tell the error; 'all' takes every one.")


def factor_passes(problem: Problem, layer: LayerFacts) -> int:
    """Backward passes per batch for every column of every row: rows of one unit must not be mixed."""
    facts = facts_of(problem)
    alone = facts.rows_are_examples or layer.positions_apart or layer.positions == 1
    return facts.columns * (1 if alone else layer.positions)


def derivative_passes(layer: LayerFacts) -> int:
    """Double-backward passes per batch for second derivatives: one per entry of a unit's output."""
    return layer.outputs * (1 if layer.positions_apart else layer.positions)


def affordable(problem: Problem, passes: int) -> bool:
    """Whether so many backward passes over all data take seconds."""
    return passes <= _MOST_PASSES and 4.0 * passes * problem.space.size * problem.totals[1] <= _MOST_FLOPS


def number_of_directions(problem: Problem, layer: LayerFacts, directions: Directions) -> int:
    """How many random directions factors are made of; 0 for all of them, exactly."""
    if directions == "all":
        return 0
    if directions != "auto":
        return directions
    few = layer.positions == 1 or facts_of(problem).rows_are_examples
    return 0 if few or affordable(problem, factor_passes(problem, layer)) else USUAL


def refuse_sampled(layer: str, what: str) -> None:
    """For what random directions would only estimate."""
    refuse(
        f"{what} needs every output direction",
        f"{layer!r}, of which random directions are used",
        "Pass directions='all', which takes a backward pass per position and output; hs.decouple(...).compare() needs none.",
    )
