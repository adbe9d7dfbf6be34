"""A long analysis in stages: what is done is on disk, so that the same call goes on after a kill."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from ..errors import FileError, refuse
from ..folders import StateFolder
from ..result import Result
from ..results.loading import load_result

R = TypeVar("R", bound=Result)
_HEADER = "belongs-to.json"


class Stages:
    """Results by stage in a folder that belongs to one fingerprint; removed when all is done, and nothing else with it."""

    def __init__(self, folder: str | os.PathLike[str] | None, fingerprint: str) -> None:
        self.folder = None if folder is None else StateFolder(folder)
        if self.folder is None:
            return
        try:
            self._belong(self.folder, fingerprint)
        except BaseException:
            self.folder.close()
            raise

    def _belong(self, folder: StateFolder, fingerprint: str) -> None:
        header = folder.path / _HEADER
        if folder.own and not (header.is_file() and header.read_text() == json.dumps(fingerprint)):
            refuse(
                "an analysis goes on with the same problem, settings and version that it began with",
                f"{str(folder.path)!r}, where another one was stopped",
                f"Repeat that call, choose another folder, or delete {str(folder.path)!r} to start afresh.",
                FileError,
            )
        folder.write(_HEADER, lambda f: f.write(json.dumps(fingerprint).encode()))

    def run(self, kind: type[R], name: str, compute: Callable[[], R]) -> R:
        """The stage's result from disk if it is there, else computed and kept."""
        if self.folder is None:
            return compute()
        path = self.folder.path / name
        if f"{name}.json" in self.folder.own and path.with_name(name + ".json").exists():
            found = load_result(path)
            if not isinstance(found, kind):
                refuse(
                    f"the state of an analysis must hold a {kind.__name__} as {name!r}",
                    f"{type(found).__name__}",
                    f"Delete {str(self.folder.path)!r} to start afresh.",
                    FileError,
                )
            return found
        result = compute()
        for suffix in (".npz", ".json"):
            self.folder.claim(name + suffix)
        result.save(path)
        return result

    def keep(self, name: str, choose: Callable[[], str]) -> str:
        """A choice that a run makes once: the one on disk, else the one made now."""
        if self.folder is None:
            return choose()
        file = self.folder.path / f"{name}.txt"
        if file.name in self.folder.own and file.is_file():
            return file.read_text()
        chosen = choose()
        self.folder.write(file.name, lambda f: f.write(chosen.encode()))
        return chosen

    def state(self, name: str) -> Path | None:
        """Where the algorithm of a stage keeps its own state."""
        return None if self.folder is None else self.folder.claim(f"{name}-state")

    def finish(self) -> None:
        """Everything is done: forget the state."""
        if self.folder is not None:
            self.folder.clear()

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.folder is not None:
            self.folder.close()
