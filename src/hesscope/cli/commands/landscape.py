"""`hesscope landscape`: the loss along directions, and how far its quadratic model holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ...errors import refuse
from ..optimizer import ChosenOptimizer
from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import Loaded, SourceAndFolder

if TYPE_CHECKING:
    from ...curvature import Problem


@dataclass(frozen=True)
class LandscapeCommand(SourceAndFolder):
    """The loss along eigenvectors, steepest descent, the optimiser's next step, random filters or the way to other
    checkpoints, beside its quadratic model, and the distance at which that model breaks."""

    along: tuple[Literal["eigenvectors", "gradient", "step", "random", "checkpoints"], ...] = ("eigenvectors",)
    """Which directions; step is that of --optimizer, checkpoints are those that the file or preset returned along
    training."""
    to: tuple[str, ...] = ()
    """Only these checkpoints: labels of those along training, or files of weights (as after file.py:make_problem@)."""
    optimizer: str | None = None
    """For --along step: state.pt, written by torch.save(optimizer.state_dict(), ...) at the weights of the problem, or a
    checkpoint that holds one; or a class whose step needs no state: SGD:lr=0.1. A preset brings its own AdamW."""
    optimizer_class: str | None = None
    """AdamW, SGD, ...: the class of the state, where its settings do not tell."""
    count: int = 2
    """How many eigenvectors or random directions."""
    plane: bool = False
    """Also the plane of two directions."""
    reach: float | None = None
    """Draw t within this distance (default: as far as the quadratic model reaches, and beyond)."""
    points: int | None = None
    """Points along a line (41) or along each side of a plane (21)."""
    share: float = 0.1
    """The model breaks where it is off by this share of its own terms."""
    seed: int = 0
    """Seed of random directions."""

    names: ClassVar = ("landscape", "landscape-*")

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...landscapes import landscape
        from ...plots.export import save_figures
        from ...plots.landscape import landscape_picture
        from ...plots.static import figures_of

        if self.optimizer is not None and "step" not in self.along:
            refuse("--optimizer belongs to its step", "no such direction", "Add --along step.")
        chosen = ChosenOptimizer.of(self.optimizer, self.optimizer_class)
        loaded = self.load()
        found = landscape(
            loaded.problem,
            self._directions(loaded, chosen),
            plane=self.plane,
            count=self.count,
            reach=self.reach,
            points=self.points,
            share=self.share,
            rng=self.seed,
            watch=bars,
        )
        lines = [
            f"{loaded.title}: loss {found.loss:.6g}, {found.passes} passes in {found.dtype}, {found.products} products"
        ]
        width = max(len(line.name) for line in found.lines)
        for line in found.lines:
            # One unit of t is |d| of parameters, so that lines of different directions can be compared.
            lines.append(
                f"{line.name:<{width}}  slope {line.slope:.3g}, curvature {line.curvature:.4g}; the quadratic model is off "
                f"by {line.share:.0%} at |t| = {line.breaks} (|d| = {line.length:.4g})"
            )
        lines += [f"note: {note}" for note in found.notes]
        data: dict[str, Any] = {
            "loss": found.loss,
            "lines": found.lines,
            "plane": found.plane,
            "passes": found.passes,
            "products": found.products,
            "notes": found.notes,
        }
        files = [found.save(self.out / "landscape")]
        files += save_figures(figures_of(landscape_picture(found)), self.out)
        return CommandOutput(lines, data, True, files)

    def _directions(self, loaded: Loaded, chosen: ChosenOptimizer) -> list[Any]:
        wanted: list[Any] = [name for name in self.along if name not in ("step", "checkpoints")]
        if "step" in self.along:
            from ...landscapes import OptimizerStep

            wanted.append(OptimizerStep(*chosen.on(loaded)))
        if "checkpoints" not in self.along and not self.to:
            return wanted
        known = dict(loaded.checkpoints or {})
        ends = {label: self._end(label, known, loaded.problem) for label in (self.to or known)}
        if not ends:
            refuse(
                "a line to a checkpoint needs one",
                "a problem without any along training",
                "Return a dict of problems, or name files of weights with --to.",
            )
        return [*wanted, ends]

    @staticmethod
    def _end(label: str, known: dict[str, Problem], problem: Problem) -> Problem:
        if label in known:
            return known[label]
        if not Path(label).exists():
            refuse(
                "a line leads to a checkpoint along training or to a file of weights",
                repr(label),
                f"There are: {', '.join(known) or 'none along training; return a dict of problems, or name a file'}.",
            )
        return problem.at(Path(label))
