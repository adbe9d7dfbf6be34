"""Compare this tree with an earlier commit of it: `python -m benchmarks.against COMMIT`, processor time, interleaved."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from .works import WORKS

HERE = Path(__file__).parents[1]


def _worker(source: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.works"]
    return subprocess.Popen(
        command, cwd=HERE, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _ask(worker: subprocess.Popen[str], work: str) -> float | str:
    assert worker.stdin
    assert worker.stdout
    worker.stdin.write(work + "\n")
    worker.stdin.flush()
    answer = json.loads(worker.stdout.readline())
    return float(answer["seconds"]) if "seconds" in answer else str(answer["error"])


def compare(commit: str, works: list[str], repeats: int) -> list[tuple[str, str, str, str]]:
    """Median processor seconds of both, and new / old, work by work; the two take turns."""
    rows = []
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "then"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(place), commit], cwd=HERE, check=True)
        stack.callback(subprocess.run, ["git", "worktree", "remove", "--force", str(place)], cwd=HERE)
        workers = [stack.enter_context(_worker(source)) for source in (place / "src", HERE / "src")]
        for worker in workers:
            stack.callback(worker.kill)
        for work in works:
            turns = [[_ask(worker, work) for worker in workers] for _ in range(repeats)]
            old, new = ([turn[side] for turn in turns] for side in (0, 1))
            failed = next((answer for answer in [*old, *new] if isinstance(answer, str)), None)
            if failed is not None:
                rows.append((work, "", "", failed[:100]))
            else:
                then, now = (median(float(t) for t in side) for side in (old, new))
                rows.append((work, f"{then:.4f}", f"{now:.4f}", f"{now / then:.2f}"))
            print("  ".join(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--only", default="", help="works whose name contains this")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None, help="a Markdown table")
    given = parser.parse_args()
    rows = compare(given.commit, [work for work in WORKS if given.only in work], given.repeats)
    if given.out is not None:
        lines = ["| work | then, s | now, s | now / then |", "| --- | --- | --- | --- |"]
        given.out.write_text("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]))


if __name__ == "__main__":
    main()
