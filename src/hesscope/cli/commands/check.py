"""`hesscope check`: are the second derivatives of this model right?"""

from __future__ import annotations

from dataclasses import dataclass

from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import Source


@dataclass(frozen=True)
class Check(Source):
    """Test symmetry, linearity and agreement with float64 differences on the model and data at hand."""

    half_within: float | None = None
    """Keep graphs with half of their digits where memory does not hold them and products change by less than this part."""

    json: bool = False
    """Print JSON for machines."""

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...curvature.self_check import check

        problem = self.load().problem
        bars.stage("self-check")
        found = check(problem, half_within=self.half_within)
        return CommandOutput([str(found)], {"verdict": found}, found.passed)
