"""What an experiment is: a recipe with a config, whose claims are declared before any run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..results.claims import Outcome
from .declared import Declared, Measured, judge

# What a run gives: arrays and numbers for the figures, and by the name of the claim what was measured.
Findings = tuple[dict[str, Any], Mapping[str, Measured]]


@dataclass(frozen=True)
class Experiment:
    """A named recipe with its claims; figures are drawn from the outcome alone.

    `quick` (seconds), `default` (minutes) and `paper` (the paper's own size) are configs of one frozen dataclass;
    `chosen` says what the paper leaves open, or what cannot be had, and what was taken instead at its size.
    """

    name: str  # as typed after `hesscope reproduce`, for example "liao2021.fig1"
    title: str
    source: str  # for example "Liao & Mahoney, Figure 1"
    quick: Any
    default: Any
    paper: Any
    run: Callable[[Any], Findings]
    claims: tuple[Declared, ...]
    figures: Callable[[Outcome], dict[str, Any]]  # name -> matplotlib Figure
    chosen: str

    @staticmethod
    def of(
        module: str, title: str, source: str, *, quick: Any, default: Any, paper: Any, chosen: str = ""
    ) -> Experiment:
        """The recipe of a module, under the name of its place: its `run`, its `CLAIMS` and, where it has them, its `figures`."""
        here = vars(sys.modules[module])
        figures = here.get("figures", lambda outcome: {})
        name = ".".join(module.split(".")[-2:])
        return Experiment(name, title, source, quick, default, paper, here["run"], here["CLAIMS"], figures, chosen)

    @property
    def sizes(self) -> dict[str, Any]:
        """The configs by the name of their size."""
        return {"quick": self.quick, "default": self.default, "paper": self.paper}

    def outcome(self, config: Any) -> Outcome:
        """What a run measures, every claim judged."""
        data, measured = self.run(config)
        return Outcome(self.name, asdict(config), data, judge(self.claims, measured))
