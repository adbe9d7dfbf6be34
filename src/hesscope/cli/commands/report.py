"""`hesscope report` and `hesscope show`: results from files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ...results.claims import Claim, Outcome
from ...results.stability import Stability
from ..output import CommandOutput
from ..progress import ProgressBar


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page from result files or a folder of them."""

    places: tyro.conf.Positional[tuple[Path, ...]]
    """Result files (.json) or folders."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page to write."""
    json: bool = False
    """Print JSON for machines."""

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...report import load_result, write_report
        from ...results.loading import result_files

        found = {path.stem: load_result(path) for path in result_files(list(self.places))}
        page = write_report(found, self.out)
        return CommandOutput(
            [f"{len(found)} result{'s' if len(found) > 1 else ''}"], {"results": list(found)}, True, [page]
        )


@dataclass(frozen=True)
class Show:
    """Say in words what a result file holds."""

    file: tyro.conf.Positional[Path]
    """A result file (.json)."""
    json: bool = False
    """Print JSON for machines."""

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...report import Analysis, load_result, summary_lines
        from ...report.sections import on_one_line
        from ...tables import field_values

        found = load_result(self.file)
        if isinstance(found, Analysis):
            lines = [f"{found.title}: {found.size:,} parameters", *summary_lines(found)]
        elif isinstance(found, Stability):
            lines = str(found).splitlines()
        elif isinstance(found, Outcome):
            lines = [found.name, *(claim_line(claim) for claim in found.claims)]
        else:
            lines = [found.kind, *(f"{name}: {on_one_line(value)}" for name, value in field_values(found))]
        return CommandOutput(lines, {"kind": found.kind, "result": found})


def claim_line(claim: Claim) -> str:
    """One claim on one line."""
    mark = {True: "holds", False: "FAILS", None: "open "}[claim.holds]
    return f"{mark}  {claim.statement} [{claim.source}]: expected {claim.expected}, got {claim.got}"
