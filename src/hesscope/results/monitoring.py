"""Curvature along one run of training: a reading per line of a file, and the run that the lines make."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ..errors import FileError, refuse
from ..files import as_path
from ..measure import Array
from ..result import Result

MARK = "hesscope-run"
VERSION = 1


@dataclass(frozen=True)
class Reading(Result):
    """Curvature at one step of a run; None where a number was not read, NaN never.

    Errors: of eigenvalues from their residuals (`converged` says whether they are within the tolerance), of the trace,
    the batch sharpness and the diagonal share as standard errors. `error` says why there is no reading at all.
    """

    step: int
    loss: float | None = None
    sharpness: float | None = None
    sharpness_error: float | None = None
    preconditioned: float | None = None
    preconditioned_error: float | None = None
    edge: float | None = None
    edge_ratio: float | None = None
    rate: float | None = None
    optimizer: str | None = None
    converged: bool | None = None
    trace: float | None = None
    trace_error: float | None = None
    gauss_newton_share: float | None = None
    batch_sharpness: float | None = None
    batch_sharpness_error: float | None = None
    diagonal_share: float | None = None
    diagonal_share_error: float | None = None
    binding: dict[str, float] = field(default_factory=dict)
    products: int = 0
    warm: bool = False
    seconds: float | None = None
    share: float | None = None
    notes: tuple[str, ...] = ()
    error: str | None = None

    def line(self) -> str:
        """One line of JSON without what was not read."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        kept = {name: _finite(value) for name, value in found.items()}
        return json.dumps({k: v for k, v in kept.items() if v is not None and v not in ({}, [], ())}, allow_nan=False)

    @staticmethod
    def of(body: Any) -> Reading | None:
        """The reading that a line describes; None where it describes none."""
        if not isinstance(body, dict) or isinstance(body.get("step"), bool) or not isinstance(body.get("step"), int):
            return None
        known = {f.name: f.type for f in fields(Reading)}
        values = {name: value for name, value in body.items() if name in known and _fits(known[name], value)}
        if isinstance(values.get("notes"), list):
            values["notes"] = tuple(map(str, values["notes"]))
        return Reading(**values)

    def numbers(self) -> dict[str, float]:
        """What trackers draw: every number of the reading by name."""
        skipped = ("step", "products", "warm")
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in skipped}
        shown = {name: float(v) for name, v in found.items() if isinstance(v, int | float) and math.isfinite(v)}
        return shown | {f"binding/{layer}": share for layer, share in self.binding.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value from a file is of the kind that the field has."""
    if str(kind).startswith("dict"):
        return isinstance(value, dict) and all(isinstance(v, int | float) for v in value.values())
    if str(kind).startswith("tuple"):
        return isinstance(value, list)
    if "str" in str(kind):
        return isinstance(value, str)
    if "bool" in str(kind):
        return isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class MonitoredRun(Result):
    """The readings of one run, in the order of their steps, and the settings they were taken with."""

    name: str
    settings: dict[str, Any]
    readings: tuple[Reading, ...]
    damaged: int = 0

    def column(self, name: str) -> Array:
        """One number along the run, NaN where it was not read."""
        if name not in {f.name for f in fields(Reading)}:
            refuse("a column must be a number of a reading", f"{name!r}", "For example 'sharpness' or 'edge_ratio'.")
        values = [getattr(reading, name) for reading in self.readings]
        return np.array([np.nan if v is None else float(v) for v in values], dtype=np.float64)

    @property
    def steps(self) -> Array:
        """The steps that were read."""
        return self.column("step")

    @property
    def failed(self) -> tuple[Reading, ...]:
        """The readings that could not be taken."""
        return tuple(reading for reading in self.readings if reading.error is not None)


def load_run(path: str | os.PathLike[str]) -> MonitoredRun:
    """The run in a file of JSON lines; a half-written last line is left out and counted."""
    file = as_path(path, "a run")
    if not file.is_file():
        refuse("the file of a run must exist", f"{str(file)!r}", "Give the .jsonl that a Monitor writes.", FileError)
    return run_of(file.name, file.read_bytes())


def run_of(name: str, content: bytes) -> MonitoredRun:
    """The run that these lines make; refused where they are not those of a run."""
    lines = content.split(b"\n")
    tail = lines.pop()
    bodies = [_parsed(line) for line in lines]
    head = bodies[0] if bodies else None
    if not isinstance(head, dict) or MARK not in head:
        refuse(
            "the file of a run must begin with the line that a Monitor writes",
            f"{name!r}, which does not",
            "Give the .jsonl of a run; nothing was changed.",
            FileError,
        )
    if head[MARK] != VERSION:
        refuse(f"a run must be of version {VERSION}", f"{head[MARK]!r}", "Read it with the Hesscope that wrote it.")
    found: dict[int, Reading] = {}
    damaged = int(bool(tail.strip()))
    for number, body in enumerate(bodies[1:], start=2):
        reading = Reading.of(body)
        if reading is None:
            if number < len(bodies):
                refuse("every line of a run must be a reading", f"line {number} of {name!r}", "Remove it.", FileError)
            damaged += 1
        else:
            found[reading.step] = reading
    settings = {key: value for key, value in head.items() if key != MARK}
    return MonitoredRun(name, settings, tuple(found[step] for step in sorted(found)), damaged)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
