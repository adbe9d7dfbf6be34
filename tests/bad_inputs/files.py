"""Files that are damaged, foreign or not there, and folders that hold what is the user's own."""

from __future__ import annotations

import importlib
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hesscope.errors import FileError

from .given import hessian, hs
from .row import Row

report: Any = importlib.import_module("hesscope.report")
experiments: Any = importlib.import_module("hesscope.experiments")


class Trap:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("open('trap', 'w').write('run')",)


def saved() -> None:
    """A result in order: `found.json` and `found.npz`."""
    hs.eigenpairs(hessian(), 2).save("found")


def _with_json(text: str) -> Any:
    def write() -> None:
        saved()
        Path("found.json").write_text(text)

    return write


def _with_result(**body: Any) -> Any:
    return _with_json(json.dumps({"format": 1, "result": body}))


def truncated() -> None:
    saved()
    Path("found.json").write_text(Path("found.json").read_text()[:-60])


def _truncated_arrays() -> None:
    saved()
    whole = Path("found.npz").read_bytes()
    Path("found.npz").write_bytes(whole[: len(whole) // 2])


def _without_arrays() -> None:
    saved()
    Path("found.npz").unlink()


def pickled_arrays() -> None:
    saved()
    np.savez("found.npz", a0=np.array([Trap()], dtype=object))


def _pickle() -> None:
    saved()
    Path("found.npz").write_bytes(pickle.dumps(Trap()))


def _foreign_arrays() -> None:
    saved()
    np.savez("found.npz", weights=np.ones(3))


def _paths_in_archive() -> None:
    saved()
    with zipfile.ZipFile("found.npz", "a") as archive:
        archive.writestr("../outside.npy", b"x")


def binary() -> None:
    Path("found.json").write_bytes(bytes(range(256)))
    np.savez("found.npz", a0=np.ones(2))


def thesis() -> None:
    """A folder of the user's own."""
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("three years of work")
    Path("mine/notes").mkdir()
    Path("mine/notes/1.txt").write_text("remember this")


def together(*writers: Callable[[], object]) -> Callable[[], None]:
    """All of these files."""

    def write() -> None:
        for writer in writers:
            writer()

    return write


def a_file() -> None:
    Path("mine").write_text("not a folder")


def _load() -> Any:
    return hs.Result.load("found")


ROWS = [
    Row("load-missing", lambda: hs.Result.load("nowhere"), "result file must exist", "nowhere", "path"),
    Row("load-folder", lambda: hs.Result.load("mine"), "result file must exist", "mine", r"\w", files=thesis),
    Row("load-number", lambda: hs.Result.load(3), "path", "3|int", r"\w"),
    Row("load-none", lambda: hs.Result.load(None), "path", "None", r"\w"),
    Row("load-truncated", _load, "complete JSON", r"'found\.json'", "truncated", files=truncated),
    Row("load-empty", _load, "complete JSON", r"'found\.json'", "truncated", files=_with_json("")),
    Row("load-binary", _load, "complete JSON", r"'found\.json'", r"\w", files=binary),
    Row("load-list", _load, "must have format", r"'found\.json'", "Hesscope", files=_with_json("[]")),
    Row(
        "load-other-format", _load, "must have format", r"'found\.json'", "Hesscope", files=_with_json('{"format": 99}')
    ),
    Row("load-no-result", _load, "describe a known result", "'found'", "Hesscope", files=_with_json('{"format": 1}')),
    Row(
        "load-deep",
        _load,
        "nest|describe|JSON",
        "found",
        r"\w",
        files=_with_json('{"format": 1, "result": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    ),
    Row(
        "load-unknown-kind",
        _load,
        "describe a known result",
        "'os.system'",
        "Hesscope",
        files=_with_result(**{"$kind": "os.system", "fields": {}}),
    ),
    Row(
        "load-missing-field",
        _load,
        "describe a known result",
        "'found'",
        "Hesscope",
        files=_with_result(**{"$kind": "Claim", "fields": {}}),
    ),
    Row(
        "load-missing-array", _load, "describe a known result", "a9", "Hesscope", files=_with_result(**{"$array": "a9"})
    ),
    Row("load-no-arrays", _load, r"needs its \.npz", r"found\.npz", "together", files=_without_arrays),
    Row("load-truncated-arrays", _load, r"\.npz of a result must", r"'found\.npz'", "again", files=_truncated_arrays),
    Row(
        "load-pickled-arrays", _load, "pickled objects are never loaded", r"'found\.npz'", "again", files=pickled_arrays
    ),
    Row("load-pickle", _load, "pickled objects are never loaded", r"'found\.npz'", "again", files=_pickle),
    Row("load-foreign-arrays", _load, r"\.npz of a result must", r"found\.npz", "again", files=_foreign_arrays),
    Row(
        "load-paths-in-archive",
        lambda: report.load_result("found.json"),
        "holds only a0.npy",
        r"'\.\./outside\.npy'",
        "nothing was unpacked",
        files=_paths_in_archive,
    ),
    Row(
        "load-other-class",
        lambda: hs.pacbayes.Bound.load("found"),
        "expected a Bound",
        "Eigenpairs in 'found'",
        r"Result\.load",
        files=saved,
    ),
    Row(
        "load-wrong-extension",
        lambda: hs.Result.load("notes.txt"),
        "result file must exist|result file",
        r"notes\.txt",
        r"\w",
        files=lambda: Path("notes.txt").write_text("hello"),
    ),
    Row(
        "save-below-a-file",
        lambda: hs.eigenpairs(hessian(), 2).save("mine/found"),
        "writ|folder",
        "mine",
        r"\w",
        files=a_file,
        error=FileError,
    ),
    Row(
        "save-onto-a-folder",
        lambda: hs.eigenpairs(hessian(), 2).save("mine"),
        "folder|file",
        "mine",
        r"\w",
        files=together(thesis, lambda: Path("mine.json").mkdir()),
        error=FileError,
    ),
    Row(
        "save-unwritable",
        lambda: hs.eigenpairs(hessian(), 2).save("/proc/hesscope/found"),
        "writ|folder",
        "/proc/hesscope",
        r"\w",
        error=FileError,
    ),
    Row("save-none", lambda: hs.eigenpairs(hessian(), 2).save(None), "path", "None", r"\w"),
    Row(
        "save-object",
        lambda: experiments.Outcome("n", {}, {"x": np.array([Trap()])}, ()).save("found"),
        "plain numbers",
        "object",
        "Convert",
    ),
    Row(
        "save-set",
        lambda: experiments.Outcome("n", {}, {"x": {1, 2}}, ()).save("found"),
        "a result holds numbers",
        "set",
        r"\w",
    ),
]
