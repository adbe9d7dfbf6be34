"""`hesscope decouple`: how near each layer's Hessian is to a Kronecker product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import SourceAndFolder


@dataclass(frozen=True)
class Decouple(SourceAndFolder):
    """Compare each layer's Hessian with E[M] ⊗ E[xxᵀ]: eigenvalues, overlap of the top spaces, errors."""

    layer: tuple[str, ...] = ()
    """Layers to compare (default: every linear and convolutional one)."""
    k: int = 20
    """Eigenpairs to compare."""

    names: ClassVar = ("decouple-*", "decoupling")

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...analysis.layers import compare_layer
        from ...errors import refuse
        from ...kron import decouplable_layers, decouple
        from ...plots.export import save_figures
        from ...plots.layers import kronecker_picture
        from ...plots.static import figures_of

        problem = self.load().problem
        layers = list(self.layer) or decouplable_layers(problem)
        if not layers:
            refuse("the model must have a linear or convolutional layer", "none", "Use `hesscope blocks` instead.")
        found = []
        for layer in layers:
            bars.stage(f"Kronecker factors of {layer}")
            found.append(compare_layer(decouple(problem, layer), self.k))
        lines = [
            f"{d.layer}: error {d.frobenius_error:.1%} (Frobenius), {d.spectral_error:.1%} (spectral); "
            f"overlap of the top {d.overlap.size} spaces {d.overlap.min():.2f} to {d.overlap.max():.2f}"
            for d in found
        ]
        files = [d.save(self.out / f"decouple-{number}") for number, d in enumerate(found)]
        files += save_figures(figures_of(kronecker_picture(found)), self.out)
        return CommandOutput(lines, {"layers": found}, True, files)
