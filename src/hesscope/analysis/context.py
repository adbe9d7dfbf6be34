"""One analysis under way: what every stage shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..curvature import Problem
from ..operators import Counted, LinearOperator
from ..rng import Rng
from .config import AnalyzeConfig
from .stages import Stages

Watch = Callable[[str, int], Callable[[int, float], None]]


@dataclass
class Context:
    """The problem, the settings, what is on disk already, who watches, and notes for the reader."""

    problem: Problem
    config: AnalyzeConfig
    stages: Stages
    watch: Watch | None = None
    notes: list[str] = field(default_factory=list)

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
