"""Claims over several seeds: ours with its spread beside the paper's number, and how often it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..result import Result
from .claims import Outcome, verdict


@dataclass(frozen=True)
class SeedClaim(Result):
    """One claim, its number at every seed (None where there is none), whether it held there, and why that is not known."""

    id: str
    statement: str
    source: str
    expected: str
    basis: str
    printed: float | None
    corrected: bool
    values: tuple[float | None, ...]
    holds: tuple[bool | None, ...]
    undecided: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[float, ...]:
        """Those there are."""
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """Over the seeds."""
        return sum(self.numbers) / len(self.numbers) if self.numbers else None

    @property
    def ratio(self) -> float | None:
        """Our mean over the paper's number."""
        return self.mean / self.printed if self.mean is not None and self.printed else None

    @property
    def share(self) -> tuple[int, int]:
        """At how many seeds it held, of how many that decided it."""
        decided = [held for held in self.holds if held is not None]
        return sum(decided), len(decided)

    @property
    def verdict(self) -> str:
        """In words; a claim that holds at some seeds only is reported as that."""
        held, decided = self.share
        if not decided:
            return verdict(None, self.corrected)
        if 0 < held < decided:
            return f"holds at {held} of {decided} seeds" + (", with correction" if self.corrected else "")
        return verdict(held == decided, self.corrected) + (f" ({held} of {decided})" if decided > 1 else "")

    @property
    def ours(self) -> str:
        """Mean, smallest and largest; where seeds do not decide, why the first of them does not."""
        why = self.undecided[0] if self.undecided else ""
        if self.mean is None:
            return why or "-"
        several = f" ({min(self.numbers):.4g} to {max(self.numbers):.4g})" if len(self.numbers) > 1 else ""
        return f"{self.mean:.4g}{several}" + (
            f" [{len(self.undecided)} of {len(self.holds)} undecided: {why}]" if why else ""
        )


@dataclass(frozen=True)
class SeedTable(Result):
    """The claims of one experiment over several seeds."""

    name: str
    seeds: tuple[int, ...]
    claims: tuple[SeedClaim, ...]

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> SeedTable:
        """From outcomes that differ in their seed alone."""
        rows = []
        for same in zip(*(outcome.claims for outcome in outcomes), strict=True):
            first = same[0]
            rows.append(
                SeedClaim(
                    first.id, first.statement, first.source, first.expected, first.basis, first.printed, first.corrected,
                    tuple(claim.value for claim in same), tuple(claim.holds for claim in same),
                    tuple(claim.got for claim in same if claim.holds is None),
                )
            )  # fmt: skip
        seeds = tuple(int(outcome.config["seed"]) for outcome in outcomes)
        return cls(outcomes[0].name, seeds, tuple(rows))

    def table(self) -> dict[str, Any]:
        return {
            "claim": [row.statement for row in self.claims],
            "source": [row.source for row in self.claims],
            "paper": [row.printed for row in self.claims],
            "ours": [row.ours for row in self.claims],
            "ratio": [row.ratio for row in self.claims],
            "expected": [row.expected for row in self.claims],
            "threshold from": [row.basis for row in self.claims],
            "verdict": [row.verdict for row in self.claims],
        }

    @property
    def holds(self) -> bool:
        """No claim fails at every seed that decides it, or at most of them."""
        return all(2 * held >= decided for held, decided in (row.share for row in self.claims))
