"""A long analysis in stages: what is done is on disk, so that the same call goes on after a kill."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..errors import FileError, refuse
from ..folders import Closing, StateFolder
from ..result import Result
from ..results.loading import load_result
from ..results.plan import AnalysisPlan

R = TypeVar("R", bound=Result)
_HEADER, _KEYS, _STATE = "belongs-to.json", "inputs.json", "-state"
MOST_BYTES = 200_000_000  # of results that stay behind


@dataclass(frozen=True)
class Limit(Generic[R]):
    """At most so many products, None without a limit; `met` says whether a result is what was asked for all the same."""

    products: int | None
    met: Callable[[R], bool]


class Stages(Closing):
    """Results by stage in a folder that belongs to one problem, each with the inputs it came from."""

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
        header = _read(folder.path / _HEADER) if _HEADER in folder.own else {}
        if folder.own and header.get("belongs to") != fingerprint:
            if not header.get("finished"):
                refuse(
                    "an analysis goes on with the same problem, settings and version that it began with",
                    f"{str(folder.path)!r}, where another one was stopped",
                    f"Repeat that call, choose another folder, or delete {str(folder.path)!r} to start afresh.",
                    FileError,
                )
            for name in sorted(folder.own):  # of another problem, whose analysis came to its end
                folder.remove(name)
        self._keys: dict[str, list[Any]] = _read(folder.path / _KEYS) if _KEYS in folder.own else {}
        self._fingerprint = fingerprint
        self._head(finished=False)

    def _head(self, finished: bool) -> None:
        assert self.folder is not None
        text = json.dumps({"belongs to": self._fingerprint, "finished": finished})
        self.folder.write(_HEADER, lambda f: f.write(text.encode()))

    def run(
        self, kind: type[R], name: str, compute: Callable[[], R], inputs: object = "", limit: Limit[R] | None = None
    ) -> R:
        """The stage's result from disk if it is there and came from the same inputs, else computed and kept.

        `limit` bounds its work: a result that met its goal is as good under any other.
        """
        if self.folder is None:
            return compute()
        path, key = self.folder.path / name, _key(inputs)
        there = f"{name}.json" in self.folder.own and path.with_name(name + ".json").exists()
        most = None if limit is None else limit.products
        known = self._keys.get(name, [_key(""), None])
        if there and known[0] == key:
            found = load_result(path)
            if not isinstance(found, kind):
                refuse(
                    f"the state of an analysis must hold a {kind.__name__} as {name!r}",
                    f"{type(found).__name__}",
                    f"Delete {str(self.folder.path)!r} to start afresh.",
                    FileError,
                )
            if limit is None or known[1] == most or limit.met(found):
                return found
        if there:  # of other inputs: gone before its key is, so that a kill leaves no result under a wrong key
            for suffix in (".json", ".npz"):
                self.folder.remove(name + suffix)
        result = compute()
        self._keys[name] = [key, most]
        keys = json.dumps(self._keys)
        self.folder.write(_KEYS, lambda f: f.write(keys.encode()))
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

    def state(self, name: str, inputs: object = "") -> Path | None:
        """Where the algorithm of a stage keeps its own state: a place for each choice of its inputs."""
        mark = f"-{_key(inputs)[:8]}" if inputs != "" else ""
        return None if self.folder is None else self.folder.claim(f"{name}{mark}{_STATE}")

    def finish(self) -> None:
        """Everything is done: forget the state."""
        if self.folder is not None:
            self.folder.clear()

    def rest(self) -> None:
        """Everything is done: results stay for the next call, which takes those whose inputs are the same."""
        if self.folder is None:
            return
        for name in sorted(name for name in self.folder.own if name.endswith(_STATE)):
            self.folder.remove(name)
        for name in ("plan.npz", "plan.json", "method.txt"):  # the next call makes its own
            self.folder.remove(name)
        files = [self.folder.path / name for name in self.folder.own]
        if sum(file.stat().st_size for file in files if file.is_file()) > MOST_BYTES:
            self.folder.clear()
        else:
            self._head(finished=True)

    def close(self) -> None:
        if self.folder is not None:
            self.folder.close()


def kept_plan(stages: Stages, make: Callable[[], AnalysisPlan], inputs: object) -> AnalysisPlan:
    """The plan that a stopped run of the same settings made, else a new one: what is done must not depend on both."""
    return stages.run(AnalysisPlan, "plan", make, inputs)


def _key(inputs: object) -> str:
    return hashlib.sha256(repr(inputs).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
