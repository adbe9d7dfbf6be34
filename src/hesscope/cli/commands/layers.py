"""`hesscope layers`: trace, top eigenvalue, norms and Kronecker error, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import SourceAndFolder


@dataclass(frozen=True)
class Layers(SourceAndFolder):
    """One row for each layer: trace, share, top eigenvalue, Frobenius norm, stable rank, Kronecker error."""

    tol: float = 0.03
    """Relative error of what is not exact."""
    no_kronecker: bool = False
    """Leave out the comparison with Kronecker factors, which takes longest."""
    seed: int = 0
    """Seed of every random vector."""

    names: ClassVar = ("layers",)

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...analysis.layer_table import measure_layers
        from ...linalg.validation import require_positive
        from ...plots.export import save_figures
        from ...rng import Rng

        require_positive("tol", self.tol)
        problem = self.load().problem
        rng = Rng(self.seed).child("per layer")
        found = measure_layers(problem, self.tol, not self.no_kronecker, rng, bars.stage)
        columns = found.table()
        shown = [name for name in columns if not name.endswith("±") and name != "method"]
        cells = [[name, *(_cell(value) for value in columns[name])] for name in shown]
        widths = [max(map(len, column)) for column in cells]
        rows = zip(*cells, strict=True)
        lines = ["  ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows]
        lines.append(f"{found.products} products; errors of all numbers are in layers.csv")
        files = [found.save(self.out / "layers"), self.out / "layers.csv"]
        found.to_csv(files[1])
        files += save_figures({"layers": found.plot()}, self.out)
        return CommandOutput(lines, {"layers": found.to_dict()}, True, files)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    number = float(value)
    return (
        "-" if number != number else f"{int(number):,}" if number == int(number) and number > 9999 else f"{number:.4g}"
    )
