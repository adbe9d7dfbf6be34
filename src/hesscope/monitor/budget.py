"""How much of the training time readings may take, and whether the next one still fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..arguments import as_float, shown
from ..errors import refuse

Clock = Callable[[], float]


def parse_share(budget: Any) -> float | None:
    """A share of the training time from "2%" or 0.02; None for no limit."""
    if budget is None:
        return None
    found = as_float(budget)
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*", budget)
        found = None if match is None else float(match[1]) / 100
    if found is None or not 0 < found <= 1:
        refuse(
            'budget must be a share of the training time above 0 and up to 1, such as "2%" or 0.02',
            shown(budget),
            "Pass None for no limit.",
        )
    return found


@dataclass
class Budget:
    """Seconds of training and of readings so far. A reading is due when what it will take still fits under the share.

    The first reading is taken at once, as nobody knows what it takes; the others wait until it is paid back.
    """

    share: float | None
    clock: Clock
    trained: float = 0.0
    spent: float = 0.0
    readings: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self._left_at: float | None = None
        self._began: float | None = None
        self._costs: dict[str, float] = {}

    def begin(self) -> None:
        """The loop hands over: what passed since it was left is training."""
        now = self.clock()
        if self._left_at is not None:
            self.trained += max(0.0, now - self._left_at)
        self._began = now

    def leave(self) -> None:
        """The loop goes on: what passed since `begin` is ours."""
        now = self.clock()
        if self._began is not None:
            self.spent += max(0.0, now - self._began)
        self._left_at, self._began = now, None

    @property
    def elapsed(self) -> float:
        """Seconds since `begin`."""
        return 0.0 if self._began is None else max(0.0, self.clock() - self._began)

    def allows(self, kind: str) -> bool:
        """Whether a reading of this kind fits; those that do not are counted."""
        if self.share is None or self.readings == 0:
            return True
        fits = self.spent + self.elapsed + self._expected(kind) <= self.share * self.trained
        self.skipped += not fits
        return fits

    def learn(self, kind: str, seconds: float) -> None:
        """A reading of this kind took so long."""
        before = self._costs.get(kind)
        self._costs[kind] = seconds if before is None else 0.5 * (before + seconds)
        self.readings += 1

    def _expected(self, kind: str) -> float:
        """As long as the last ones of its kind; of a kind not seen yet, three times a quick one, or the longest.

        The first quick one is taken to be half of the first of all, which had proofs and a search from nothing in it.
        """
        longest = max(self._costs.values(), default=0.0)
        if kind == "quick":
            return self._costs.get(kind, 0.5 * longest)
        return self._costs.get(kind, min(longest, 3 * self._costs.get("quick", longest)))

    @property
    def used(self) -> float | None:
        """The share of the training time spent so far."""
        return (self.spent + self.elapsed) / self.trained if self.trained > 0 else None

    def state(self) -> dict[str, Any]:
        """What a restart goes on from."""
        return {
            "trained": self.trained,
            "spent": self.spent,
            "readings": self.readings,
            "skipped": self.skipped,
            "costs": dict(self._costs),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.trained, self.spent = float(state["trained"]), float(state["spent"])
        self.readings, self.skipped = int(state["readings"]), int(state["skipped"])
        self._costs = {str(kind): float(cost) for kind, cost in state["costs"].items()}
