"""Run an experiment and draw it; data that were replaced are named in the outcome and on every figure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..missing_data import stand_ins
from ..results.claims import Experiment, Outcome


def run_experiment(experiment: Experiment, config: Any, stand_in: bool | None = None) -> Outcome:
    """The outcome, with the names of data that synthetic ones stood in for (refused unless `stand_in`)."""
    with stand_ins(stand_in) as used:
        outcome = experiment.run(config)
    return replace(outcome, stand_ins=tuple(used))


def figures_of(experiment: Experiment, outcome: Outcome) -> dict[str, Any]:
    """Every figure by name."""
    made = experiment.figures(outcome)
    if outcome.stand_ins:
        for figure in made.values():
            figure.text(0.5, 0.0, stand_in_line(outcome), ha="center", va="top", fontsize=7, color="#b00020")
    return made


def stand_in_line(outcome: Outcome) -> str:
    """What a reader must know before any number."""
    return f"Synthetic data stand in for: {', '.join(outcome.stand_ins)}."
