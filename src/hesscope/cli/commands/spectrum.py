"""`hesscope spectrum`: eigenvalues at the ends and the density of one curvature matrix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ...folders import StateFolder
from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import SourceAndFolder

if TYPE_CHECKING:
    from ...curvature import CurvatureOperator, Problem
    from ...results.spectra import Eigenpairs, SpectralDensity

MatrixChoice = Literal["hessian", "gauss-newton", "functional", "fisher"]


@dataclass(frozen=True)
class SpectrumCommand(SourceAndFolder):
    """Spectral density and extreme eigenvalues of one curvature matrix."""

    matrix: MatrixChoice = "hessian"
    """Which matrix: H, G, R = H - G, or the exact Fisher matrix."""
    params: str = "*"
    """Glob of the parameters to look at."""
    k: int = 10
    """Eigenvalues at each end."""
    tol: float = 1e-3
    """Relative residual of an eigenpair."""
    probes: int = 10
    """Random vectors, at most."""
    steps: int = 80
    """Lanczos steps per random vector, at most."""

    @property
    def kept(self) -> Path:
        return self.out / "spectrum-state"

    names: ClassVar = ("spectrum",)

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...linalg import eigenpairs, spectral_density
        from ...operators import Counted
        from ...plots.export import save_figures
        from ...plots.spectrum import spectrum_panel
        from ...plots.static import figure_of

        if self.kept.exists():
            StateFolder(self.kept).close()  # refuses what is not ours, before anything is computed
        problem = self.load().problem
        operator = _operator(problem if self.params == "*" else problem.select(self.params), self.matrix)
        ends = eigenpairs(
            Counted(operator, on_product=bars("eigenvalues", 5 * self.k)), self.k, which="both", tol=self.tol
        )
        found = spectral_density(
            Counted(operator, on_product=bars("density", self.probes * self.steps // 4)),
            self.probes,
            steps=self.steps,
            resume=self.kept,
        )
        half = ends.values.size // 2
        # Of an odd number, as of one parameter, the middle one belongs to both ends.
        largest, smallest = ends.values[: ends.values.size - half], ends.values[half:]
        lines = [
            f"{self.matrix} of {operator.shape[0]:,} parameters, {ends.products + found.products} products",
            "largest:  " + "  ".join(f"{value:.4g}" for value in largest),
            "smallest: " + "  ".join(f"{value:.4g}" for value in smallest),
            f"worst residual {ends.residuals.max():.1e}, {'all' if ends.converged.all() else 'NOT all'} converged",
            f"mean {found.mean:.4g}, {_below_zero(found, ends)} (density ± {found.error:.1g} in W₁)",
        ]
        data: dict[str, Any] = {
            "largest": largest,
            "smallest": smallest,
            "residuals": ends.residuals,
            "nodes": found.nodes,
        }
        data |= {
            "weights": found.weights,
            "products": ends.products + found.products,
            "converged": bool(ends.converged.all()),
        }
        files = [found.save(self.out / "spectrum")]
        files += save_figures({"spectrum": figure_of([spectrum_panel(self.matrix, found, largest)])}, self.out)
        if self.kept.exists():
            StateFolder(self.kept).clear()
        return CommandOutput(lines, data, True, files)


def _below_zero(found: SpectralDensity, ends: Eigenpairs) -> str:
    """The share of negative eigenvalues; none where the smallest one is zero within its error and rounding."""
    half = ends.values.size // 2
    lowest, size = float(ends.values[half:].min()), float(abs(ends.values).max())
    noise = max(1e-5 * size, float(ends.residuals[half:].max()))
    if lowest >= -noise:
        return f"none below zero (λ_min = {lowest:.2g}, zero within {noise:.1g})"
    return f"{float(found.cdf(-noise)):.1%} below −{noise:.1g}"


def _operator(problem: Problem, matrix: MatrixChoice) -> CurvatureOperator:
    from ...curvature import Fisher, FunctionalHessian, GaussNewton, Hessian

    if matrix == "fisher":
        return Fisher(problem, kind="exact")
    if matrix == "gauss-newton":
        return GaussNewton(problem)
    return FunctionalHessian(problem) if matrix == "functional" else Hessian(problem)
