"""`hesscope reproduce`: the papers' figures and tables, with their claims checked."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ...errors import refuse
from ..output import CommandOutput
from ..overrides import with_overrides
from ..progress import Bars
from .report import claim_line


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of a paper; exit code 1 when one of its claims fails."""

    name: tyro.conf.Positional[str | None] = None
    """Which one, as --list names it."""
    list: bool = False
    """Name every experiment."""
    size: Literal["quick", "paper"] = "quick"
    """Minutes, or the size of the paper."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Change settings of that size, for example --set epochs=100; `--list --json` shows them all."""
    data_dir: Path | None = None
    """Folder with real data (default: $HESSCOPE_DATA)."""
    stand_in: bool = False
    """Synthetic data where the paper's are not at hand; said on the terminal, in the JSON and on every figure."""
    out: Path = Path("reproduced")
    """Folder for results and figures."""
    json: bool = False
    """Print JSON for machines."""

    def run(self, bars: Bars) -> CommandOutput:
        from ...experiments import figures_of, find, run_experiment
        from ...experiments.running import stand_in_line
        from ...plots.export import save_figures

        if self.list:
            return _listed()
        if self.name is None:
            refuse("name an experiment", "none", "See `hesscope reproduce --list`.")
        if self.data_dir is not None:
            if not self.data_dir.is_dir():
                refuse("the data folder must exist", f"{str(self.data_dir)!r}", "Check --data-dir.")
            os.environ["HESSCOPE_DATA"] = str(self.data_dir)
        experiment = find(self.name)
        bars(f"{experiment.title} ({self.size})", 0)
        config = with_overrides(experiment.quick if self.size == "quick" else experiment.paper, self.set)
        outcome = run_experiment(experiment, config, self.stand_in or None)
        stem = self.name.replace(".", "-")
        files = [outcome.save(self.out / stem)]
        files += save_figures(
            {f"{stem}-{key}": made for key, made in figures_of(experiment, outcome).items()}, self.out
        )
        said = [stand_in_line(outcome)] if outcome.stand_ins else []
        lines = [f"{experiment.title} ({experiment.source})", *said, *(claim_line(claim) for claim in outcome.claims)]
        return CommandOutput(
            lines,
            {"name": outcome.name, "stand_ins": outcome.stand_ins, "claims": outcome.claims},
            outcome.holds,
            files,
        )


def _listed() -> CommandOutput:
    from ...experiments import find, names

    found = [find(name) for name in names()]
    width = max((len(e.name) for e in found), default=0)
    lines = [f"{e.name:<{width}}  {e.title} ({e.source})" for e in found]
    data: list[dict[str, Any]] = [
        {"name": e.name, "title": e.title, "source": e.source, "quick": _settings(e.quick), "paper": _settings(e.paper)}
        for e in found
    ]
    return CommandOutput(lines, {"experiments": data})


def _settings(config: Any) -> dict[str, Any]:
    return asdict(config) if is_dataclass(config) and not isinstance(config, type) else {}
