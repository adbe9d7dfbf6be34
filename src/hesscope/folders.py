"""Folders that hold the state of a run: one run at a time, and only what it wrote itself is ever removed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from .errors import FileError, refuse
from .files import (
    HOST,
    alive,
    file_errors,
    is_partial,
    make_folder,
    refuse_foreign,
    remove_dead_partials,
    replace,
    unfinished,
)

MARKER = "hesscope-state.txt"
_TITLE = "The state of a Hesscope run. Files named below are its own; nothing else in this folder is ever removed."
_YOUNG = 5.0  # seconds in which a lock without content may still be being written


class Lock:
    """A file that exists while one process works; the lock of a process that died is taken over.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Lock(Path(folder) / ".lock", "a folder", wait=0):
    ...         try:
    ...             Lock(Path(folder) / ".lock", "a folder", wait=0).acquire()
    ...         except FileError as error:
    ...             print(str(error)[:42])
    a folder can be used by one run at a time;
    """

    def __init__(self, path: Path, what: str, wait: float = 1.0) -> None:
        self.path, self.what, self.wait = path, what, wait
        self._token = ""

    def acquire(self) -> Lock:
        """Take the lock, after at most `wait` seconds; refused with who holds it."""
        deadline = time.monotonic() + self.wait
        while not self._create():
            holder = self._holder()
            if holder is None or self._is_stale(holder):
                self._break(holder)
            elif time.monotonic() >= deadline:
                self._refuse(holder)
            else:
                time.sleep(0.02)
        return self

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._token and self._read() == self._token:
            with suppress(OSError):
                self.path.unlink()
        self._token = ""

    def __enter__(self) -> Lock:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def _create(self) -> bool:
        own = json.dumps({"pid": os.getpid(), "host": HOST, "began": _start_of(os.getpid()), "at": time.time_ns()})
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        except OSError:
            with file_errors(self.path.parent):
                raise
        with os.fdopen(handle, "w") as file:
            file.write(own)
        self._token = own
        return True

    def _read(self) -> str:
        try:
            return self.path.read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def _holder(self) -> dict[str, Any] | None:
        """Who holds the lock; None when it has just been given back, an empty dict while it is being written."""
        text = self._read()
        try:
            body = json.loads(text)
            return body if isinstance(body, dict) and "pid" in body else {}
        except json.JSONDecodeError:
            return {} if self.path.exists() else None

    def _is_stale(self, holder: dict[str, Any]) -> bool:
        if not holder:
            with suppress(OSError):
                return time.time() - self.path.stat().st_mtime > _YOUNG
            return True
        if holder.get("host") != HOST:
            return False
        pid = int(holder["pid"])
        return not alive(pid) or _start_of(pid) != holder.get("began")

    def _break(self, holder: dict[str, Any] | None) -> None:
        """Move a stale lock aside; if it was replaced by a living one in the meantime, put that one back."""
        if holder is None:
            return
        aside = self.path.with_name(f"{self.path.name}.{os.getpid()}-{time.time_ns()}")
        with suppress(OSError):
            os.rename(self.path, aside)
            try:
                moved = json.loads(aside.read_text())
            except json.JSONDecodeError:
                moved = {}
            if moved != holder:
                os.link(aside, self.path)
            aside.unlink()

    def _refuse(self, holder: dict[str, Any]) -> None:
        who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
        refuse(
            f"{self.what} can be used by one run at a time",
            f"{str(self.path.parent)!r}, where {who} is at work",
            f"Wait for it, or choose another folder. If no such process runs, delete {str(self.path)!r}.",
            FileError,
        )


class Closing:
    """What closes itself at the end of a `with` block."""

    def close(self) -> None:
        raise AssertionError("subclasses define close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class StateFolder(Closing):
    """A folder with a list of the files that were written into it; removes those, and itself if it made it.

    Refuses a folder that holds anything when it has no such list. Processes that share a run use one `part` each.
    """

    def __init__(self, folder: str | os.PathLike[str], part: str = "run") -> None:
        if not isinstance(folder, str | os.PathLike):
            refuse("resume must be a folder", f"{folder!r}", "For example resume='runs/1'.")
        self.path = Path(folder)
        self._refuse_foreign()
        new = make_folder(self.path)
        self._lock = Lock(self.path / f".{part}.lock", "the state of a run").acquire()
        try:
            self._mark(new)
            self.own, self.made = self._listed()
            remove_dead_partials(self.path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others use the folder."""
        self._lock.release()

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        """Write or replace one of our files as a whole."""
        self.claim(name)
        replace(self.path / name, write)

    def claim(self, name: str) -> Path:
        """Enter a name into the list before it is written; a file of somebody else that has it is refused."""
        if name not in self.own:
            if os.path.lexists(self.path / name):
                refuse_foreign(self.path / name)
            self._note(f"+ {name}")
            self.own.add(name)
        return self.path / name

    def remove(self, name: str) -> None:
        """Remove one of our files."""
        if name in self.own:
            _remove_own(self.path / name)
            self._note(f"- {name}")
            self.own.discard(name)

    def clear(self) -> None:
        """Remove all that we wrote, and the folder if we made it and nothing else is left; then let go of it."""
        for name in sorted(self.own):
            _remove_own(self.path / name)
        self.own.clear()
        with suppress(OSError):
            (self.path / MARKER).unlink(missing_ok=True)
        self.close()
        if self.made:
            with suppress(OSError):
                self.path.rmdir()

    def _refuse_foreign(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            refuse(
                "the state of a run is kept in a folder", f"the file {str(self.path)!r}", "Choose a folder.", FileError
            )
        if not self.path.is_dir() or (self.path / MARKER).exists():
            return
        with file_errors(self.path):
            others = [name for name in os.listdir(self.path) if not (is_partial(name) or name.endswith(".lock"))]
        if others and not (self.path / MARKER).exists():  # written since, by a process that shares the run
            refuse(
                "a folder for the state of a run must be new, empty, or made by Hesscope",
                f"{str(self.path)!r}, which holds {sorted(others)[0]!r}" + (" and more" if len(others) > 1 else ""),
                "Choose another folder; nothing in it was changed.",
                FileError,
            )

    def _mark(self, new: bool) -> None:
        marker = self.path / MARKER
        if marker.exists():
            return
        text = f"{_TITLE}\n" + ("made by the run\n" if new else "")
        whole = unfinished(marker)
        replace(whole, lambda f: f.write(text.encode()))
        try:
            os.link(whole, marker)  # unlike a replacement, never in the place of another's list
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            replace(marker, lambda f: f.write(text.encode()))
        whole.unlink()

    def _listed(self) -> tuple[set[str], bool]:
        try:
            lines = (self.path / MARKER).read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            lines = []
        if not lines or lines[0] != _TITLE:
            refuse(
                "the list of a state folder must be complete",
                f"{str(self.path / MARKER)!r}, which is damaged or not Hesscope's",
                "Choose another folder; nothing in it was changed.",
                FileError,
            )
        own: set[str] = set()
        for line in lines[1:]:
            name = line[2:]
            if line.startswith("+ ") and _is_plain(name):
                own.add(name)
            elif line.startswith("- "):
                own.discard(name)
        return own, "made by the run" in lines

    def _note(self, line: str) -> None:
        with file_errors(self.path / MARKER), open(self.path / MARKER, "a") as handle:
            handle.write(line + "\n")


def _is_plain(name: str) -> bool:
    """A list may name files of its own folder only, whoever wrote it."""
    return bool(name) and name not in (".", "..") and os.path.basename(name) == name


def _remove_own(path: Path) -> None:
    """A file; or a folder, if it is itself the state of a run: then what that run wrote."""
    if path.is_dir() and not path.is_symlink():
        if (path / MARKER).exists():
            StateFolder(path).clear()
    else:
        with file_errors(path):
            path.unlink(missing_ok=True)


def _start_of(pid: int) -> str:
    """When a process began, where the system says: numbers of processes are used again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
