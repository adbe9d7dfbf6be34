"""One analysis under way: what every stage shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from .. import deadline
from ..curvature import Problem
from ..operators import Counted, LinearOperator
from ..operators.counted import Watch
from ..results.plan import AnalysisPlan
from ..rng import Rng
from .config import AnalyzeConfig
from .stages import Stages

T = TypeVar("T")
OVERRUN = 1.5  # of its own price that a stage may take, whatever the others need


@dataclass
class Context:
    """The problem, the settings, what is on disk already, the plan, who watches, and notes for the reader."""

    problem: Problem
    config: AnalyzeConfig
    stages: Stages
    watch: Watch | None = None
    notes: list[str] = field(default_factory=list)
    plan: AnalysisPlan = field(default_factory=lambda: AnalysisPlan(None, 0.0, 0.0, 0.0, ()))
    started: float = field(default_factory=lambda: deadline.now())

    @property
    def rng(self) -> Rng:
        return Rng(self.config.seed).child("analyze")

    def counted(self, stage: str, operator: LinearOperator, expected: int) -> Counted:
        """The operator, whose products are told to whoever watches."""
        return Counted(operator, on_product=self.watch(stage, expected) if self.watch else None)

    def announce(self, stage: str) -> None:
        """Tell whoever watches of a stage without products."""
        if self.watch:
            self.watch(stage, 0)

    def amount(self, stage: str, otherwise: int) -> int:
        """How many random vectors, layers or checkpoints the plan gives a stage."""
        planned = self.plan.stage(stage)
        return otherwise if planned is None or planned.amount is None else planned.amount

    def limit(self, stage: str) -> int | None:
        """How many products the plan gives a stage, at most."""
        planned = self.plan.stage(stage)
        return None if planned is None else planned.products

    def planned(self, stage: str, work: Callable[[], T]) -> T:
        """A stage of the core, which runs to its end; what it took is noted."""
        began = deadline.now()
        found = work()
        self.plan = self.plan.noted(stage, deadline.now() - began)
        return found

    def optional(self, stage: str, work: Callable[[], T], otherwise: T) -> T:
        """A stage that may be left out, and is cut off where it would take the time of those after it."""
        planned = self.plan.stage(stage)
        if planned is None or not planned.kept:
            return otherwise
        began = deadline.now()
        try:
            with deadline.work_until(self._end_of(stage)):
                found = work()
        except deadline.OutOfTime:
            self.plan = self.plan.noted(stage, deadline.now() - began, cut=True)
            return otherwise
        self.plan = self.plan.noted(stage, deadline.now() - began)
        return found

    def _end_of(self, stage: str) -> float | None:
        """When a stage must end: its price and what is to spare, or a little more than its price."""
        plan = self.plan
        if plan.budget is None or self.problem.distributed:  # processes would not stop at the same product
            return None
        names = [planned.name for planned in plan.stages]
        place = names.index(stage)
        later = sum(planned.seconds for planned in plan.stages[place + 1 :] if planned.kept and planned.took is None)
        own = plan.stages[place].seconds
        return max(self.started + plan.budget - later, deadline.now() + OVERRUN * own)
