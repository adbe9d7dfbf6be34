"""What an analysis set out to do within its time, what that was thought to take, and what it took."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..result import Result

# The stages of an analysis by name: first those that every one has.
CHECK, LARGEST, SMALLEST, TRACE, SPECTRUM = (
    "self-check",
    "largest eigenvalues",
    "smallest eigenvalues",
    "trace",
    "spectrum",
)
PARTS, GN_SPECTRUM, SECOND, LAYERS, NEURONS, FINE, KRONECKER, LANDSCAPE, LAYER_TABLE, TRAINING, TRAINING_BLOCKS = (
    "Gauss-Newton part",
    "spectrum of G",
    "trace by products",
    "blocks by layer",
    "blocks by neuron",
    "finer blocks of G",
    "Kronecker factors",
    "landscape",
    "table by layer",
    "training",
    "blocks along training",
)


@dataclass(frozen=True)
class PlannedStage(Result):
    """One stage: the seconds it was thought to take, and how much of it was planned.

    `kept` False: left out. `amount` of `whole` (`unit`): random vectors, layers or checkpoints; a whole of None is what
    takes no such number. `products`: at most so many, None without a limit. `took`: seconds, None where it did not run; `cut`: stopped before its end.
    """

    name: str
    seconds: float
    kept: bool = True
    amount: int | None = None
    whole: int | None = None
    unit: str = ""
    products: int | None = None
    took: float | None = None
    cut: bool = False

    @property
    def said(self) -> str:
        if self.amount is None or self.amount == self.whole:
            return self.name
        of = "" if self.whole is None else f" of {self.whole}"
        return f"{self.name}, {self.amount}{of} {self.unit}".rstrip()


@dataclass(frozen=True)
class AnalysisPlan(Result):
    """The stages of an analysis in order; `budget` in seconds, None without one.

    Prices come from one gradient and one product with H and G on the problem itself. What a stage computes depends on
    this plan alone, so that two machines with the same plan find the same numbers.
    """

    budget: float | None
    gradient_seconds: float
    product_seconds: float
    gauss_newton_seconds: float
    stages: tuple[PlannedStage, ...]

    def stage(self, name: str) -> PlannedStage | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    @property
    def seconds(self) -> float:
        """What the kept stages were thought to take."""
        return sum(stage.seconds for stage in self.stages if stage.kept)

    @property
    def left_out(self) -> tuple[PlannedStage, ...]:
        return tuple(stage for stage in self.stages if not stage.kept)

    @property
    def cut(self) -> tuple[PlannedStage, ...]:
        return tuple(stage for stage in self.stages if stage.cut)

    def noted(self, name: str, took: float, cut: bool = False) -> AnalysisPlan:
        """The same after a stage has run."""
        done = tuple(
            replace(stage, took=(stage.took or 0.0) + took, cut=stage.cut or cut) if stage.name == name else stage
            for stage in self.stages
        )
        return replace(self, stages=done)

    def lines(self) -> list[str]:
        """For people: the stages with their prices, then what was left out."""
        if self.budget is None:
            return ["No budget: every stage runs."]
        kept = [f"{stage.said} ({duration(stage.seconds)})" for stage in self.stages if stage.kept]
        found = [f"Plan for {duration(self.budget)} (about {duration(self.seconds)}): {'; '.join(kept)}."]
        found += [*self.omissions()]
        if self.seconds > self.budget:
            found.append("What is planned is the least there is, and takes longer than the budget.")
        return found

    def omissions(self) -> list[str]:
        """What is missing or less than asked for, each with its price."""
        found = []
        if self.left_out:
            named = "; ".join(f"{stage.name} ({duration(stage.seconds)})" for stage in self.left_out)
            found.append(f"Left out for the budget of {duration(self.budget or 0.0)}: {named}. Raise --budget for it.")
        less = [stage.said for stage in self.stages if stage.kept and stage.said != stage.name]
        if less:
            found.append(f"Less than asked for, to keep the budget: {'; '.join(less)}.")
        for stage in self.cut:
            found.append(
                f"Cut off: {stage.name} after {duration(stage.took or 0.0)}, planned for {duration(stage.seconds)}. "
                "Raise --budget for it."
            )
        return found


def duration(seconds: float) -> str:
    """2.5 s, 3 min 20 s, 1 h 5 min."""
    if seconds < 99.5:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
