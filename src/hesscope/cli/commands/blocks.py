"""`hesscope blocks`: how large every block of the Hessian is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...folders import StateFolder
from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import SourceAndFolder


@dataclass(frozen=True)
class Blocks(SourceAndFolder):
    """Frobenius norms of the blocks of the Hessian by layer, tensor, neuron, class or head."""

    by: Literal["layer", "tensor", "neuron", "class", "head"] = "layer"
    """What a block is."""

    @property
    def kept(self) -> Path:
        return self.out / f"blocks-{self.by}-state"

    @property
    def names(self) -> tuple[str, ...]:
        return (f"blocks-{self.by}",)

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...plots.export import save_figures
        from ...structure import block_norms

        if self.kept.exists():
            StateFolder(self.kept).close()  # refuses what is not ours, before anything is computed
        problem = self.load().problem
        bars.stage(f"blocks by {self.by}")
        found = block_norms(problem, self.by, resume=self.kept)
        kind = "exact" if found.exact else "estimated"
        lines = [
            f"{len(found.names)} blocks by {self.by}, norms {kind}",
            f"{1 - found.off_diagonal_share:.2%} of ‖H‖² on the diagonal, {found.off_diagonal_share:.2%} off it",
        ]
        if len(found.names) <= 24:
            width = max(len(name) for name in found.names)
            rows = zip(found.names, found.norms, strict=True)
            lines += [f"{name:>{width}}  " + " ".join(f"{value:9.3g}" for value in row) for name, row in rows]
        data = {
            "names": found.names,
            "norms": found.norms,
            "exact": found.exact,
            "off_diagonal_share": found.off_diagonal_share,
        }
        files = [found.save(self.out / f"blocks-{self.by}")]
        files += save_figures({f"blocks-{self.by}": found.plot()}, self.out)
        StateFolder(self.kept).clear()
        return CommandOutput(lines, data, True, files)
