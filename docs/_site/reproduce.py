"""Run the list of longer runs and keep their verdicts in docs/outcomes: one file per experiment and size.

A file that is there is not computed again (delete it to do so); a run that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hesscope import __version__
from hesscope.cli.output import plain
from hesscope.experiments import SeedTable, find, names, run_seeds
from hesscope.experiments.long_runs import sharing
from hesscope.experiments.running import sizes
from hesscope.zoo.data import VARIABLE

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "outcomes"
STATE = ROOT / "build" / "reproduce"
RUNS = (("quick", 5), ("default", 1))  # size and seeds, for every experiment


def main(wanted: list[str]) -> None:
    """Those named (or all), at every size of the list; `NAME:SIZE` for one."""
    OUT.mkdir(exist_ok=True)
    folder = os.environ.pop(VARIABLE, None)
    for size, seeds in RUNS:
        for name in names():
            if wanted and name not in wanted and f"{name}:{size}" not in wanted:
                continue
            file = OUT / f"{name}.{size}.json"
            if file.exists():
                continue
            started = time.perf_counter()
            experiment = find(name)
            if size != "quick" and folder is not None:  # quick is as in tests, which have no data folder
                os.environ[VARIABLE] = folder
            config = sizes(experiment)[size]
            with sharing(STATE / "networks"):
                outcomes = run_seeds(experiment, config, seeds, True, STATE / f"{name}-{size}")
            outcomes[0].save(STATE / "done" / f"{name}.{size}")  # with its data, from which figures can be drawn again
            entry = {
                "name": name,
                "size": size,
                "commit": _commit(),
                "version": __version__,
                "settings": asdict(config),
                "stand_ins": outcomes[0].stand_ins,
                "seconds": round(time.perf_counter() - started, 1),
                **_claims(SeedTable.of(outcomes)),
            }
            file.write_text(json.dumps(plain(entry), indent=1, ensure_ascii=False) + "\n")
            print(f"{name} at {size} size, {seeds} seeds: {entry['seconds']:.0f} s", flush=True)


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
            "mean": row.mean,
            "ratio": row.ratio,
            "verdict": row.verdict,
        }
        for row in table.claims
    ]
    return {"seeds": table.seeds, "claims": rows}


def _commit() -> str:
    said = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


if __name__ == "__main__":
    main(sys.argv[1:])
