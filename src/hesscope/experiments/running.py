"""Run an experiment, at one seed or several, and draw it; data that were replaced are named wherever results go."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from dataclasses import replace as changed
from hashlib import sha256
from pathlib import Path
from typing import Any

from .._version import __version__
from ..missing_data import ALLOWING, stand_ins
from ..results.claims import Outcome
from .long_runs import Listener, keeping, progress
from .recipe import Experiment
from .registry import find, names


def run_experiment(experiment: Experiment, config: Any, stand_in: bool | None = None) -> Outcome:
    """The outcome, with the names of data that synthetic ones stood in for (refused unless `stand_in`)."""
    with stand_ins(stand_in) as used:
        outcome = experiment.outcome(config)
    return changed(outcome, stand_ins=tuple(used))


def run_seeds(
    experiment: Experiment,
    config: Any,
    seeds: int = 1,
    stand_in: bool | None = None,
    state: Path | None = None,
    tell: Listener | None = None,
) -> list[Outcome]:
    """Outcomes at `seeds` seeds from the config's on.

    With a `state` folder whatever is done is kept there, a killed run goes on from it, and it is gone at the end.
    """
    found, folders = [], []
    for number in range(seeds):
        one = changed(config, seed=config.seed + number)
        folder = None if state is None else state / _belongs(experiment, one, stand_in)
        folders += [] if folder is None else [folder]
        with keeping(folder, tell):
            progress(f"{experiment.name}, seed {one.seed}" + (f" ({number + 1} of {seeds})" if seeds > 1 else ""))
            found.append(_done(folder) or _run(experiment, one, stand_in, folder))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    if state is not None:
        with suppress(OSError):  # another run may keep something there
            state.rmdir()
    return _alike(found)


def _alike(outcomes: list[Outcome]) -> list[Outcome]:
    """Every outcome with the stand-ins of all of them: what is said of one seed is said of their table."""
    every = tuple(dict.fromkeys(name for outcome in outcomes for name in outcome.stand_ins))
    return [changed(outcome, stand_ins=every) for outcome in outcomes]


def _run(experiment: Experiment, config: Any, stand_in: bool | None, folder: Path | None) -> Outcome:
    outcome = run_experiment(experiment, config, stand_in)
    if folder is not None:
        outcome.save(folder / "outcome")
    return outcome


def _done(folder: Path | None) -> Outcome | None:
    return Outcome.load(folder / "outcome") if folder is not None and (folder / "outcome.json").exists() else None


def _belongs(experiment: Experiment, config: Any, stand_in: bool | None) -> str:
    """A name for everything that an outcome depends on."""
    settings = sorted(asdict(config).items())
    at_hand = _at_hand(getattr(config, "data_dir", None)) if _may_replace(stand_in) else ()
    said = repr((experiment.name, settings, stand_in, at_hand, __version__))
    return sha256(said.encode()).hexdigest()[:16]


def _may_replace(stand_in: bool | None) -> bool:
    return os.environ.get(ALLOWING, "") not in ("", "0") if stand_in is None else stand_in


def _at_hand(folder: str | None) -> tuple[tuple[str, int], ...]:
    """The files of the data folder: with others, other data may be replaced than in the run that was begun."""
    where = folder or os.environ.get("HESSCOPE_DATA")
    if not where or not Path(where).is_dir():
        return ()
    return tuple(sorted((file.name, file.stat().st_size) for file in Path(where).iterdir() if file.is_file()))


def outcome_figures(outcome: Outcome) -> dict[str, Any]:
    """Every figure by name, drawn by the experiment of that name; a file can name anything, for which there is none."""
    made = find(outcome.name).figures(outcome) if outcome.name in names() else {}
    if outcome.stand_ins:
        for figure in made.values():
            figure.text(0.5, 0.0, stand_in_line(outcome), ha="center", va="top", fontsize=7, color="#b00020")
    return made


def stand_in_line(outcome: Outcome) -> str:
    """What a reader must know before any number."""
    return f"Synthetic data stand in for: {', '.join(outcome.stand_ins)}."


def verdict_counts(verdicts: Sequence[str]) -> str:
    """How many claims have which verdict, for example "5 hold, 1 does not hold"."""
    groups = {
        "hold": [v for v in verdicts if v.startswith("holds") and " at " not in v and "correction" not in v],
        "hold with correction": [v for v in verdicts if v.startswith("holds with")],
        "hold at some seeds": [v for v in verdicts if v.startswith("holds at")],
        "do not hold": [v for v in verdicts if v.startswith("does not")],
        "not decidable at this size": [v for v in verdicts if v.startswith("not")],
    }
    return ", ".join(f"{len(found)} {_verb(name, len(found))}" for name, found in groups.items() if found)


def _verb(words: str, count: int) -> str:
    """ "hold" becomes "holds" of a single claim."""
    first, space, rest = words.partition(" ")
    return ({"hold": "holds", "do": "does"}.get(first, first) if count == 1 else first) + space + rest
