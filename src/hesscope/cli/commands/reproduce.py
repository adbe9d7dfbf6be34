"""`hesscope reproduce`: the papers' figures and tables, number beside number."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ...errors import refuse
from ...files import make_folder
from ..output import CommandOutput
from ..overrides import with_overrides
from ..progress import ProgressBar

if TYPE_CHECKING:
    from ...experiments import Experiment
    from ...results.seeds import SeedTable


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of a paper; exit code 1 when one of its claims does not hold at most seeds."""

    name: tyro.conf.Positional[str | None] = None
    """Which one, as --list names it."""
    list: bool = False
    """Name every experiment."""
    claims: bool = False
    """Show what is claimed, with the paper's numbers and where thresholds come from, without running anything."""
    size: Literal["quick", "default", "paper"] = "quick"
    """Seconds, minutes, or exactly the paper's data, networks, epochs and sizes."""
    seeds: int = 1
    """At how many seeds; a claim that holds at three of five is reported as that."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Change settings of that size, for example --set epochs=100; `--list --json` shows them all."""
    data_dir: Path | None = None
    """Folder with real data (default: $HESSCOPE_DATA)."""
    stand_in: bool = False
    """Synthetic data where the paper's are not at hand; said on the terminal, in the JSON and on every figure."""
    out: Path = Path("reproduced")
    """Folder for results and figures; the same command goes on with a run that was stopped there."""
    json: bool = False
    """Print JSON for machines."""

    @property
    def names(self) -> tuple[str, ...]:
        stem = (self.name or "").replace(".", "-")
        return (stem, f"{stem}-*") if stem else ()

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...experiments import SeedTable, find, outcome_figures, run_seeds
        from ...experiments.running import stand_in_line
        from ...plots.export import save_figures

        if self.list:
            return _listed()
        if self.name is None:
            refuse("name an experiment", "none", "See `hesscope reproduce --list`.")
        if self.seeds < 1:
            refuse("--seeds must be at least 1", f"{self.seeds}", "Use --seeds 5 for five of them.")
        experiment = find(self.name)
        if self.claims:
            return _declared(experiment)
        if self.data_dir is not None:
            if not self.data_dir.is_dir():
                refuse("the data folder must exist", f"{str(self.data_dir)!r}", "Check --data-dir.")
            os.environ["HESSCOPE_DATA"] = str(self.data_dir)
        config = with_overrides(experiment.sizes[self.size], self.set)
        make_folder(self.out)
        for line in self._before(experiment):
            bars.say(line)
        stem = self.name.replace(".", "-")
        outcomes = run_seeds(
            experiment, config, self.seeds, self.stand_in or None, self.out / f".{stem}-{self.size}-state",
            bars.stage,
        )  # fmt: skip
        files = [
            outcome.save(self.out / (stem if number == 0 else f"{stem}-seed{outcome.config['seed']}"))
            for number, outcome in enumerate(outcomes)
        ]
        drawn = {f"{stem}-{key}": made for key, made in outcome_figures(outcomes[0]).items()}
        files += save_figures(drawn, self.out)
        table = SeedTable.of(outcomes)
        said = [stand_in_line(outcomes[0])] if outcomes[0].stand_ins else []
        lines = [f"{experiment.title} ({experiment.source})", *said, *_claim_lines(table)]
        data: dict[str, Any] = {"name": self.name, "size": self.size, "stand_ins": outcomes[0].stand_ins}
        data |= {"seeds": table.seeds, "claims": outcomes[0].claims, "table": table.table()}
        return CommandOutput(lines, data, table.holds, files)

    def _before(self, experiment: Experiment) -> tuple[str, ...]:
        """What to know before it starts: how long it takes, and what the paper left open."""
        from ...experiments.times import expected_seconds, in_words

        lines = []
        seconds = expected_seconds(experiment.name, self.size)
        if seconds is not None and (self.size == "paper" or seconds * self.seeds > 20):
            changed = " before --set" if self.set else ""
            lines.append(
                f"{experiment.name} at {self.size} size takes about {in_words(seconds * self.seeds)}{changed}."
            )
        if self.size == "paper" and experiment.chosen:
            lines.append(f"Chosen where the paper or the data leave it open: {experiment.chosen}")
        return tuple(lines)


def _claim_lines(table: SeedTable) -> tuple[str, ...]:
    width = max((len(row.verdict) for row in table.claims), default=0)
    lines = []
    for row in table.claims:
        printed = "" if row.printed is None else f", paper {row.printed:.4g}"
        ratio = "" if row.ratio is None else f" (ratio {row.ratio:.3g})"
        lines.append(
            f"{row.verdict:<{width}}  {row.statement} [{row.source}]: {row.ours}{printed}{ratio}; expected {row.expected}"
            f" ({row.basis})"
        )
    return tuple(lines)


def _declared(experiment: Experiment) -> CommandOutput:
    lines = [f"{experiment.title} ({experiment.source})"]
    for one in experiment.claims:
        printed = "" if one.printed is None else f"; paper {one.printed:.4g}"
        lines.append(f"{one.id}: {one.says} [{one.where}]: {one.expected}{printed} ({one.basis}: {one.because})")
    return CommandOutput(lines, {"name": experiment.name, "claims": [asdict(one) for one in experiment.claims]})


def _listed() -> CommandOutput:
    from ...experiments import find, names

    found = [find(name) for name in names()]
    width = max((len(e.name) for e in found), default=0)
    lines = [f"{e.name:<{width}}  {e.title} ({e.source})" for e in found]
    data: tuple[dict[str, Any], ...] = tuple(
        {"name": e.name, "title": e.title, "source": e.source, "chosen": e.chosen}
        | {size: _settings(config) for size, config in e.sizes.items()}
        for e in found
    )
    return CommandOutput(lines, {"experiments": data})


def _settings(config: Any) -> dict[str, Any]:
    return asdict(config) if is_dataclass(config) and not isinstance(config, type) else {}
