"""Interleaved timing: a busy machine slows all contestants alike, so ratios hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table: what was done, ours and theirs in one unit, the target and whether it is met."""

    work: str
    ours: str
    best_peer: str
    ratio: (
        float  # how many times faster (or leaner) than the best peer; or the cost in gradients where the target says so
    )
    target: str
    met: bool
    note: str = ""


def interleaved(jobs: dict[str, Callable[[], object]], repeats: int = 5, warm_up: bool = True) -> dict[str, float]:
    """The median seconds of each job over `repeats` rounds in which every job runs once."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    if warm_up:
        for job in jobs.values():
            job()
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - start)
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}


def once(job: Callable[[], object]) -> tuple[float, object]:
    """Seconds and result of one run, for work too long to repeat."""
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result
