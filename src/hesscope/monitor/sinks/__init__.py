"""Trackers that get every number of a reading beside the file."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ...arguments import shown
from ...errors import refuse

NAMES = ("tensorboard", "wandb", "mlflow", "trackio")
PREFIX = "curvature/"


class Sink(Protocol):
    """What a reading is handed to."""

    def write(self, step: int, numbers: dict[str, float]) -> None: ...

    def close(self) -> None: ...


def checked_sinks(given: str | Sink | Iterable[str | Sink]) -> list[Any]:
    """Trackers by name or as they are, in a list; refused before anything is written."""
    chosen: list[Any] = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    known = ", ".join(NAMES)
    for one in chosen:
        if not isinstance(one, str):
            if not (callable(getattr(one, "write", None)) and callable(getattr(one, "close", None))):
                refuse("a tracker must have write(step, numbers) and close()", shown(one), f"Or name one of {known}.")
        elif one not in NAMES:
            refuse(f"a tracker must be one of {known}", shown(one), "Or pass an object with write and close.")
        elif find_spec(one) is None:
            refuse(f"to={one!r} needs the package {one}", "none installed", "Try pip install 'hesscope[track]'.")
    return chosen


def open_sinks(chosen: list[Any], path: Path) -> list[Sink]:
    """The trackers at work; `path` is the file of the run, beside which their own files go."""
    return [_module(one).open_sink(path) if isinstance(one, str) else one for one in chosen]


def _module(name: str) -> Any:
    return importlib.import_module(f".{name}_sink", __package__)
