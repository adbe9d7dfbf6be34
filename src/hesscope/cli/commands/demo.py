"""`hesscope demo`: a small network on the embedded digits, from training to report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...analysis.config import AnalyzeConfig
from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import from_preset
from .analyze import WritesAnalysis, analyze_and_write


@dataclass(frozen=True)
class Demo(WritesAnalysis):
    """Train a small network on digits that ship with the package, analyse its Hessian, write a report."""

    out: Path = Path("demo")
    """Folder for the report, the results and the figures."""
    budget: str = "5m"
    """How long the analysis may take, as for analyze."""
    json: bool = False
    """Print JSON for machines."""

    def run(self, bars: ProgressBar) -> CommandOutput:
        return analyze_and_write(from_preset("mlp-digits"), AnalyzeConfig(), self.out, bars, budget=self.budget)
