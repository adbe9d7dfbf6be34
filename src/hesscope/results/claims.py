"""What an experiment is: a recipe with a config that ends in checked claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..result import Result


@dataclass(frozen=True)
class Claim(Result):
    """One statement with its source, what was expected, what was measured, and whether it holds.

    `holds` is None where the errors of the measurement are too large to decide.
    """

    statement: str
    source: str
    expected: str
    got: str
    holds: bool | None


@dataclass(frozen=True)
class Outcome(Result):
    """What an experiment measured: named arrays and numbers for the figures, and its claims.

    `stand_ins` names the data that were not at hand and were replaced by synthetic ones, as asked for.
    """

    name: str
    config: dict[str, Any]
    data: dict[str, Any]
    claims: tuple[Claim, ...]
    stand_ins: tuple[str, ...] = ()

    def table(self) -> dict[str, Any]:
        said = {True: "yes", False: "no", None: "cannot be decided"}
        return {
            "claim": [claim.statement for claim in self.claims],
            "source": [claim.source for claim in self.claims],
            "expected": [claim.expected for claim in self.claims],
            "got": [claim.got for claim in self.claims],
            "holds": [said[claim.holds] for claim in self.claims],
        }

    def _picture(self) -> Any:
        return self.plot()

    @property
    def holds(self) -> bool:
        return all(claim.holds is not False for claim in self.claims)


@dataclass(frozen=True)
class Experiment:
    """A named recipe. `quick` and `paper` are configs of one frozen dataclass; figures are drawn from the outcome alone."""

    name: str  # as typed after `hesscope reproduce`, for example "liao2021.fig1"
    title: str
    source: str  # for example "Liao & Mahoney, Figure 1"
    quick: Any
    paper: Any
    run: Callable[[Any], Outcome]
    figures: Callable[[Outcome], dict[str, Any]] = field(default=lambda outcome: {})  # name -> matplotlib Figure
