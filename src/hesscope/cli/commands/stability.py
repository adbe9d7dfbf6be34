"""`hesscope stability`: is the optimiser's step stable, at which rate does it stop to be, and which layers bind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..optimizer import ChosenOptimizer
from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import SourceAndFolder


@dataclass(frozen=True)
class StabilityCommand(SourceAndFolder):
    """Curvature as the optimiser sees it against that optimiser's edge; what binds; what batches see."""

    optimizer: str | None = None
    """state.pt, written by torch.save(optimizer.state_dict(), ...) at the weights of the problem, or a checkpoint that
    holds one; or a class whose edge needs no state: SGD:lr=0.1,momentum=0.9. A preset brings its own AdamW."""
    optimizer_class: str | None = None
    """AdamW, SGD, ...: the class of the state, where its settings do not tell."""
    k: int = 6
    """Eigenvalues."""
    tol: float = 1e-2
    """Relative residual of an eigenpair."""
    batch_size: int | None = None
    """The batch size of training, for batch sharpness and the noise scale (default: the problem's own batches)."""
    batches: int = 16
    """Batches to look at, at most."""
    no_line_search: bool = False
    """Leave out the forward passes along the real next step."""

    names: ClassVar = ("stability",)

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...plots.export import save_figures
        from ...plots.stability import stability_figure
        from ...step_stability import stability

        chosen = ChosenOptimizer.of(self.optimizer, self.optimizer_class)
        loaded = self.load()
        given, kind = chosen.on(loaded)
        found = stability(
            loaded.problem,
            given,
            k=self.k,
            tol=self.tol,
            batch_size=self.batch_size,
            batches=self.batches,
            line_search=not self.no_line_search,
            kind=kind,
        )
        data: dict[str, Any] = {
            "optimizer": found.optimizer,
            "rate": found.hessian.rate,
            "values": found.hessian.top.values,
            "residuals": found.hessian.top.residuals,
            "edge": found.hessian.edge,
            "ratio": found.ratio,
            "ratio_error": found.hessian.ratio_error,
            "critical_rate": found.critical_rate,
            "critical_rate_is": "a ceiling for full-batch steps, not advice",
            "binding": {one.by: {one.names[i]: float(one.share[i]) for i in one.order[:10]} for one in found.bindings},
            "batch": found.batch,
            "step": found.step,
            "notes": found.notes,
        }
        files = [found.save(self.out / "stability")]
        files += save_figures({"stability": stability_figure(found)}, self.out)
        return CommandOutput([f"{loaded.title}:", *str(found).splitlines()], data, True, files)
