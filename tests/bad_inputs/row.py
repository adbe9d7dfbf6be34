"""One bad input, the answer it must get, and what it really gets."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from hesscope.cli import main
from hesscope.errors import InputError

LONGEST = 900  # characters: a short paragraph, with room for the names of all parameters or the words of torch
Seen = tuple[int, int, bytes]  # mode, time of change, content


@dataclass(frozen=True)
class Row:
    """A bad input and what must be said of it: "`must`; got `got`. `do`", each a regular expression.

    `error`: the exact class of the exception, or the exit code of a command line. `files` writes what the user has in
    the working folder; none of it may be changed, and nothing may be left beside it. `flags`: the parser of the command
    line refuses it, in its own words.
    """

    name: str
    call: Callable[[], object]
    must: str
    got: str
    do: str = r"\w"
    error: type[Exception] | int = InputError
    files: Callable[[], object] | None = None
    flags: bool = False

    @property
    def pattern(self) -> str:
        if self.flags:
            return rf"(?s)(?=.*(?:{self.must}))(?=.*(?:{self.got})).*(?:{self.do})"
        given = "; got " if isinstance(self.error, int) or issubclass(self.error, InputError) else "; "
        return rf"(?s)(?:{self.must}).*{given}.*(?:{self.got}).*[.?] .*(?:{self.do})"


@dataclass(frozen=True)
class Exit:
    """How a command line ended."""

    code: int
    message: str


def command(*arguments: str) -> Callable[[], Exit]:
    """The command line `hesscope ARGUMENTS`, with what it prints on stderr."""

    def run() -> Exit:
        said, printed = io.StringIO(), io.StringIO()
        with redirect_stderr(said), redirect_stdout(printed):
            code = main(arguments)
        return Exit(code, said.getvalue())

    return run


def complaint(row: Row, folder: Path) -> str:
    """What is wrong with the answer to a row, run in an empty folder; nothing when it is as the table says."""
    with _working_in(folder):
        if row.files is None:
            return _complaint(row)
        row.files()
        before = _seen(folder)
        found = _complaint(row)
        return found + _harm(before, _seen(folder))


def _harm(before: dict[str, Seen], after: dict[str, Seen]) -> str:
    """Which files of the user were changed, lost or left behind."""
    changed = [name for name in before if name in after and after[name] != before[name]]
    groups = {"changed": changed, "lost": [*(before.keys() - after.keys())], "left": [*(after.keys() - before.keys())]}
    return "".join(f"; files {what}: {', '.join(sorted(names))}" for what, names in groups.items() if names)


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """The folder as the working one, and no warnings."""
    home = Path.cwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.chdir(home)


def _complaint(row: Row) -> str:
    try:
        result = row.call()
    except Exception as error:
        if isinstance(row.error, int):
            return f"raw {type(error).__name__}: {error}"
        if type(error) is not row.error:
            return f"raw {type(error).__name__} instead of {row.error.__name__}: {error}"
        return _unclear(row, str(error))
    except BaseException as error:  # a SystemExit of the user's own file, for example
        return f"raw {type(error).__name__}: {error}"
    if isinstance(result, Exit) and isinstance(row.error, int) and result.code == row.error:
        return _unclear(row, result.message.strip())
    return f"accepted: {type(result).__name__}"


def _unclear(row: Row, message: str) -> str:
    if "Traceback" in message:
        return f"unclear, a traceback in the message: {message[:300]}"
    if not row.flags and (len(message) > LONGEST or message.count("\n") > 2):
        return f"unclear, {len(message)} characters in {message.count(chr(10)) + 1} lines: {message[:300]}"
    if not re.search(row.pattern, message):
        return f"unclear: {message!r} does not match {row.pattern!r}"
    return ""


def _seen(folder: Path) -> dict[str, Seen]:
    """Every file and folder below, with its mode, time of change and content; what Python caches does not count."""
    found = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in [*folders, *files]:
            path = Path(root, name)
            state = path.stat()
            time = 0 if path.is_dir() else state.st_mtime_ns
            found[str(path.relative_to(folder))] = (
                state.st_mode,
                time,
                path.read_bytes() if path.is_file() else b"",
            )
    return found
