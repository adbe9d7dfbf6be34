"""A claim as it is written down before any run: what is said, where, and which numbers would agree with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

from ..results.claims import Claim

if TYPE_CHECKING:
    from typing import Unpack

Rule = Literal["<=", ">=", "<", ">", "in", "±"]
Basis = Literal["paper", "sampling theory", "convention"]  # ours, where the paper has words and no number


class PrintedEstimate(NamedTuple):
    """A number to stand beside the paper's, how many standard errors lie between the two, and how to show it."""

    value: float
    score: float
    shown: str


Measured = (
    float | str | tuple[float, str] | PrintedEstimate
)  # a number, why there is none, or a number and how to show it


@dataclass(frozen=True)
class Declared:
    """`limit` follows from `basis` in the way that `because` says; it never comes from what was measured.

    Where the paper says "high" or "close" and prints no number, the limit is a convention of ours and says so.

    `printed` is the paper's own number, where it prints one. `corrected` claims replace what the paper says.
    `counted`: the number is a share of so many, and moves by one of them where machines round otherwise.
    """

    id: str
    where: str
    says: str
    rule: Rule
    limit: float | tuple[float, float]
    because: str
    basis: Basis = "paper"
    printed: float | None = None
    corrected: bool = False
    counted: int | None = None

    @property
    def expected(self) -> str:
        """The rule in words."""
        if isinstance(self.limit, tuple):
            return f"{self.limit[0]:.4g} to {self.limit[1]:.4g}"
        if self.rule == "±":
            return f"{self.printed:.4g} to {self.limit:.4g} standard errors"
        return f"{self.rule} {self.limit:.4g}"

    def agrees(self, value: float) -> bool:
        """Whether the number is one of those that agree; of "±", the number of standard errors."""
        if isinstance(self.limit, tuple):
            return self.limit[0] <= value <= self.limit[1]
        return {
            "<=": value <= self.limit,
            ">=": value >= self.limit,
            "<": value < self.limit,
            ">": value > self.limit,
            "±": value <= self.limit,
        }[self.rule]

    def judged(self, measured: Measured | None) -> Claim:
        """The claim beside what was measured; a text says why nothing could be."""
        if measured is not None and not isinstance(measured, str):
            assert (self.rule == "±") == isinstance(measured, PrintedEstimate), (
                f"{self.id}: an estimate of the printed number"
            )
        if isinstance(measured, PrintedEstimate):
            return self._claim(measured.value, measured.shown, self.agrees(measured.score))
        value, shown = measured if isinstance(measured, tuple) else (measured, "")
        if value is None or isinstance(value, str):
            return self._claim(None, value or "not measured at this size", None)
        number = float(value)
        return self._claim(number, shown or f"{number:.4g}", self.agrees(number) if isfinite(number) else False)

    def _claim(self, value: float | None, got: str, holds: bool | None) -> Claim:
        said = f"{self.basis}: {self.because}"
        return Claim(
            self.says, self.where, self.expected, got, holds, self.id, value, self.printed, said, self.corrected
        )


class About(TypedDict, total=False):
    """What may be said besides."""

    basis: Basis
    printed: float | None
    corrected: bool
    counted: int | None


def at_most(id: str, where: str, says: str, limit: float, because: str, **about: Unpack[About]) -> Declared:
    """The number must not exceed the limit."""
    return Declared(id, where, says, "<=", limit, because, **about)


def at_least(id: str, where: str, says: str, limit: float, because: str, **about: Unpack[About]) -> Declared:
    """The number must reach the limit."""
    return Declared(id, where, says, ">=", limit, because, **about)


def less(id: str, where: str, says: str, limit: float, because: str, **about: Unpack[About]) -> Declared:
    """ "Smaller", "falls", "less" in the paper's words."""
    return Declared(id, where, says, "<", limit, because, **about)


def more(id: str, where: str, says: str, limit: float, because: str, **about: Unpack[About]) -> Declared:
    """ "Larger", "grows", "more" in the paper's words."""
    return Declared(id, where, says, ">", limit, because, **about)


def between(id: str, where: str, says: str, low: float, high: float, because: str, **about: Unpack[About]) -> Declared:
    """The number must lie in a range that the paper prints or states."""
    return Declared(id, where, says, "in", (low, high), because, **about)


def standard_errors(
    id: str, where: str, says: str, *, printed: float | None = None, corrected: bool = False
) -> Declared:
    """Deviation over its standard error, at most 4: what chance exceeds once in 16,000 draws of a normal law.

    With a `printed` number, what is measured is an `PrintedEstimate` of it: the two stand beside each other, in one unit.
    """
    because = "4 standard errors of the measurement"
    rule: Rule = "<=" if printed is None else "±"
    return Declared(id, where, says, rule, 4.0, because, "sampling theory", printed, corrected)


def equal(id: str, where: str, says: str, tolerance: float = 1e-10, *, corrected: bool = False) -> Declared:
    """An identity of the paper: the relative gap is rounding in double precision."""
    because = "an equality, up to the rounding of double precision"
    return Declared(id, where, says, "<=", tolerance, because, "paper", None, corrected)


def judge(declared: Sequence[Declared], measured: Mapping[str, Measured]) -> tuple[Claim, ...]:
    """Every declared claim with its number; what is measured must have been declared."""
    known = {one.id for one in declared}
    foreign = sorted(set(measured) - known)
    assert not foreign, f"measured but never declared: {', '.join(foreign)}"
    return tuple(one.judged(measured.get(one.id)) for one in declared)
