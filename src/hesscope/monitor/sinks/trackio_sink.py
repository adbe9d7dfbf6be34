"""Readings in Trackio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import PREFIX, Sink


class TrackioSink:
    """A local Trackio run; where one is under way, it gets the readings."""

    def __init__(self, path: Path) -> None:
        import trackio
        from trackio import context_vars

        current = context_vars.current_run.get()
        self._own = current is None
        self._run: Any = current or trackio.init(project="hesscope", name=path.stem, embed=False)

    def write(self, step: int, numbers: dict[str, float]) -> None:
        self._run.log({PREFIX + name: value for name, value in numbers.items()}, step=step)

    def close(self) -> None:
        if self._own:
            self._run.finish()


def open_sink(path: Path) -> Sink:
    """The tracker for this run."""
    return TrackioSink(path)
