"""`hesscope plan`: what a computation would cost, before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import Source


@dataclass(frozen=True)
class PlanCommand(Source):
    """Memory, products and seconds that an algorithm would need on this problem."""

    algorithm: Literal["eigenpairs", "spectral_density", "trace", "diagonal"] = "eigenpairs"
    """What would run."""
    k: int = 10
    """Eigenpairs, where that is what would run."""
    json: bool = False
    """Print JSON for machines."""

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...curvature.costs.plans import plan

        options = {"k": self.k} if self.algorithm == "eigenpairs" else {}
        found: Any = plan(self.load().problem, self.algorithm, **options)
        lines = [
            f"{self.algorithm}: about {found.products} products, {found.seconds:.3g} s, {found.bytes / 1e6:.3g} MB",
            *([found.note] if found.note else []),
        ]
        data = {"algorithm": self.algorithm, "products": found.products, "seconds": found.seconds, "bytes": found.bytes}
        data["note"] = found.note
        return CommandOutput(lines, data)
