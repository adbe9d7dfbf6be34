"""A long analysis in stages: what is done is on disk, so that the same call goes on after a kill."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..report.files import load_result
from ..result import Result

R = TypeVar("R", bound=Result)


class Stages:
    """Results by stage in a folder that belongs to one fingerprint; another fingerprint starts afresh."""

    def __init__(self, folder: str | os.PathLike[str] | None, fingerprint: str) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is None:
            return
        header = self.folder / "belongs-to.json"
        if not (header.exists() and header.read_text() == json.dumps(fingerprint)):
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            header.write_text(json.dumps(fingerprint))

    def run(self, kind: type[R], name: str, compute: Callable[[], R]) -> R:
        """The stage's result from disk if it is there, else computed and kept."""
        if self.folder is None:
            return compute()
        path = self.folder / name
        if path.with_name(name + ".json").exists():
            found = load_result(path)
            assert isinstance(found, kind)
            return found
        result = compute()
        result.save(path)
        return result

    def state(self, name: str) -> Path | None:
        """Where the algorithm of a stage keeps its own state."""
        return None if self.folder is None else self.folder / f"{name}-state"

    def finish(self) -> None:
        """Everything is done: forget the state."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
