"""What an experiment measured, and what that says of every claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..result import Result


def verdict(holds: bool | None, corrected: bool) -> str:
    """One of four."""
    if holds is None:
        return "not decidable at this size"
    return ("holds with correction" if corrected else "holds") if holds else "does not hold"


@dataclass(frozen=True)
class Claim(Result):
    """One statement with its source, what was expected, what was measured, and whether it holds.

    `holds` is None where the errors of the measurement, or its size, do not let it be decided. `value` is what was measured
    as a number and `printed` the paper's own; `basis` says where the threshold comes from. A claim that is `corrected`
    stands in the place of a statement that is wrong as printed.
    """

    statement: str
    source: str
    expected: str
    got: str
    holds: bool | None
    id: str = ""
    value: float | None = None
    printed: float | None = None
    basis: str = ""
    corrected: bool = False

    @property
    def verdict(self) -> str:
        """In words."""
        return verdict(self.holds, self.corrected)

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's number."""
        return self.value / self.printed if self.value is not None and self.printed else None


@dataclass(frozen=True)
class Outcome(Result):
    """What an experiment measured: named arrays and numbers for the figures, and its claims.

    `stand_ins` names the data that were not at hand and were replaced by synthetic ones, as asked for.
    """

    _pictured = True

    name: str
    config: dict[str, Any]
    data: dict[str, Any]
    claims: tuple[Claim, ...]
    stand_ins: tuple[str, ...] = ()

    def table(self) -> dict[str, Any]:
        return {
            "claim": [claim.statement for claim in self.claims],
            "source": [claim.source for claim in self.claims],
            "expected": [claim.expected for claim in self.claims],
            "got": [claim.got for claim in self.claims],
            "printed": [claim.printed for claim in self.claims],
            "ratio": [claim.ratio for claim in self.claims],
            "threshold from": [claim.basis for claim in self.claims],
            "verdict": [claim.verdict for claim in self.claims],
        }

    @property
    def holds(self) -> bool:
        return all(claim.holds is not False for claim in self.claims)
