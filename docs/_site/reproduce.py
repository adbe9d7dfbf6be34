"""Run the list of longer runs and keep their verdicts in docs/outcomes: one file per experiment and size.

A file that is there is not computed again (delete it to do so); a run that was stopped goes on where it was. Seconds are
the processor's, of all seeds and all starts; `commits` names the code of every start in order, `commit` that of the last.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hesscope import __version__
from hesscope.experiments import SeedTable, find, names, run_seeds
from hesscope.experiments.long_runs import Listener, sharing
from hesscope.experiments.times import expected_seconds
from hesscope.files import make_folder, replace
from hesscope.tables import plain
from hesscope.zoo.data import VARIABLE

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "outcomes"
STATE = ROOT / "build" / "reproduce"
SEEDS = {"quick": 5, "default": 1, "paper": 1}
MINUTES = 5.0  # the paper's own size is run for all only where it takes no longer


def main(wanted: list[str]) -> None:
    """Those named (or all), at every size; `NAME:SIZE` for one size, `NAME:SIZE:SEEDS` for other seeds than usual."""
    OUT.mkdir(exist_ok=True)
    folder = os.environ.pop(VARIABLE, None)
    for size in SEEDS:
        for name in names():
            seeds = _asked(name, size, wanted)
            file = OUT / f"{name}.{size}.json"
            if not seeds or file.exists():
                continue
            if size != "quick" and folder is not None:  # quick is as in tests, which have no data folder
                os.environ[VARIABLE] = folder
            entry = _entry(name, size, seeds)
            file.write_text(json.dumps(plain(entry), indent=1, ensure_ascii=False) + "\n")
            print(f"{name} at {size} size, {seeds} seeds: {entry['seconds']:.0f} s", flush=True)


def _entry(name: str, size: str, seeds: int) -> dict[str, Any]:
    """Run one experiment, or go on with it: its verdicts, and what is needed to trace them."""
    experiment = find(name)
    config = experiment.sizes[size]
    starts = Starts(STATE / "starts" / f"{name}.{size}.json", asdict(config))
    with sharing(STATE / "networks"), starts.counted() as tell:
        outcomes = run_seeds(experiment, config, seeds, True, STATE / f"{name}-{size}", tell)
    outcomes[0].save(STATE / "done" / f"{name}.{size}")  # with its data, from which figures can be drawn again
    kept = starts.finished()
    return {
        "name": name,
        "size": size,
        "commit": kept[-1]["commit"],
        "commits": [one["commit"] for one in kept],
        "version": __version__,
        "settings": asdict(config),
        "stand_ins": outcomes[0].stand_ins,
        "seconds": round(sum(one["seconds"] for one in kept), 1),
        **_claims(SeedTable.of(outcomes)),
        "numbers": numbers(outcomes[0].data),
    }


class Starts:
    """The starts of one run, `{commit, seconds}` each, in a file beside its state: a run that was stopped has several.

    Starts with other settings, or of another version, have left nothing that this run goes on from: they do not count.
    """

    def __init__(self, file: Path, settings: dict[str, Any]) -> None:
        self._file = file
        self._of = plain({"settings": settings, "version": __version__})
        found = json.loads(file.read_text()) if file.exists() else {}
        self._starts = found["starts"] if found.get("of") == self._of else []

    @contextmanager
    def counted(self) -> Iterator[Listener]:
        """Inside, a start; its seconds are written at every progress, since a run that is killed says nothing at its end."""
        began = time.process_time()
        self._starts.append({"commit": _commit(), "seconds": 0.0})

        def tell(_: str = "") -> None:
            self._starts[-1]["seconds"] = round(time.process_time() - began, 1)
            make_folder(self._file.parent)
            replace(self._file, lambda file: file.write(json.dumps({"of": self._of, "starts": self._starts}).encode()))

        try:
            tell()
            yield tell
        finally:
            tell()

    def finished(self) -> list[dict[str, Any]]:
        """All of them; the next run begins anew."""
        self._file.unlink()
        return self._starts


def _asked(name: str, size: str, wanted: list[str]) -> int:
    """How many seeds; 0 where it was not asked for."""
    for text in wanted:
        asked, *rest = text.split(":")
        if asked == name and rest[:1] in ([], [size]) and (rest or size != "paper"):
            return int(rest[1]) if len(rest) > 1 else SEEDS[size]
    short = size != "paper" or (expected_seconds(name, size) or 1e9) <= 60 * MINUTES
    return SEEDS[size] if not wanted and short else 0


def _claims(table: SeedTable) -> dict[str, Any]:
    rows = [
        {
            "id": row.id,
            "statement": row.statement,
            "source": row.source,
            "expected": row.expected,
            "threshold": row.basis,
            "printed": row.printed,
            "values": row.values,
            "holds": row.holds,
            "undecided": row.undecided,
            "mean": row.mean,
            "ratio": row.ratio,
            "verdict": row.verdict,
        }
        for row in table.claims
    ]
    return {"seeds": table.seeds, "claims": rows}


def numbers(data: Any, most: int = 24) -> Any:
    """What was measured at the first seed, but for arrays of more than `most` numbers (pictures, spectra, samples)."""
    if isinstance(data, dict):
        found = {str(name): numbers(part, most) for name, part in data.items()}
        return {name: part for name, part in found.items() if part not in (None, {})}
    try:
        values = np.asarray(data)
    except ValueError:  # curves of several lengths
        return None
    if values.size > most or values.dtype.kind not in "biufUS":
        return None
    if values.dtype.kind == "f":
        return np.vectorize(lambda value: float(f"{value:.4g}") if np.isfinite(value) else None, otypes=[object])(
            values
        ).tolist()
    return values.tolist()


def _commit() -> str:
    said = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


if __name__ == "__main__":
    main(sys.argv[1:])
