"""`hesscope analyze`: everything about one Hessian, a report, and ten plain lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...analysis.config import AnalyzeConfig
from ...plots.export import FORMATS, save_figures
from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import Loaded, Source

if TYPE_CHECKING:
    from ...results.analysis import Analysis
    from ...results.landscape import LossLine


_FIGURES = ("spectrum", "spectrum-linear", "counts", "layers", "blocks-*", "decoupling", "landscape-*", "history")
NAMES = ("analysis", "report", *(f"figures/{name}" for name in _FIGURES))  # of the files written, without suffix


class WritesAnalysis:
    """Where a command that ends in `analyze_and_write` keeps its state, and which files it writes to `out`."""

    out: Path

    @property
    def kept(self) -> Path:
        return self.out / "state"

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES


@dataclass(frozen=True)
class Analyze(WritesAnalysis, Source):
    """Analyse the Hessian of a problem; writes report.html, result files and figures, and ends in ten plain lines."""

    out: Path = Path("hesscope-out")
    """Folder for the report, the results and the figures."""
    budget: str = "5m"
    """Time to keep: stages are planned by value per price and what does not fit is named; "none" runs everything."""
    formats: tuple[Literal["png", "svg", "pdf"], ...] = ("png", "svg", "pdf")
    """File formats of the figures."""
    json: bool = False
    """Print JSON for machines."""
    settings: AnalyzeConfig = field(default_factory=AnalyzeConfig)

    def run(self, bars: ProgressBar) -> CommandOutput:
        return analyze_and_write(self.load(), self.settings, self.out, bars, self.formats, self.budget)


def _lines(found: Analysis) -> tuple[LossLine, ...]:
    return () if found.landscape is None else found.landscape.lines


def analyze_and_write(
    loaded: Loaded,
    settings: AnalyzeConfig,
    out: Path,
    bars: ProgressBar,
    formats: tuple[str, ...] = FORMATS,
    budget: str = "5m",
) -> CommandOutput:
    """Analyse, then write `analysis.json/.npz`, `report.html` and `figures/`."""
    from ...analysis.run import analyze
    from ...plots.analysis import analysis_figures
    from ...report import summary_lines, write_report
    from ...report.evidence import evidence_of

    found = analyze(
        loaded.problem,
        settings,
        checkpoints=loaded.checkpoints,
        title=loaded.title,
        source=loaded.source,
        budget=budget,
        on_plan=lambda plan: bars.say("\n".join(plan.lines())),
        resume=out / "state",
        watch=bars,
    )
    result = found.save(out / "analysis")
    page = write_report(found, out / "report.html")
    save_figures(analysis_figures(found), out / "figures", formats)
    lines = summary_lines(found)
    data = {
        "title": found.title,
        "parameters": found.size,
        "loss": found.loss,
        "sharpness": found.sharpness,
        "sharpness_error": found.largest.residuals[0],
        "largest": found.largest.values,
        "smallest": found.smallest.values,
        "trace": float(found.trace),
        "trace_stderr": found.trace.stderr,
        "negative_mass": found.negative_mass,
        "negative_weight": found.negative_weight,
        "outliers": found.gap[0],
        "classes": found.classes,
        "between_layers": {m.partition: m.off_diagonal_share for m in found.blocks},
        "kronecker_error": {d.layer: d.frobenius_error for d in found.kronecker},
        "quadratic_until": {line.name: (line.breaks.low, line.breaks.high) for line in _lines(found)},
        "evidence": evidence_of(found),
        "claims": found.claims,
        "products": found.products,
        "seconds": found.seconds,
        "plan": found.plan,
        "notes": found.notes,
        "lines": lines,
    }
    missing = [] if found.plan is None else found.plan.omissions()
    passed = found.verdict is None or found.verdict.passed
    return CommandOutput(
        [f"{found.title}: {found.size:,} parameters", *lines, *missing], data, passed, [page, result, out / "figures"]
    )
