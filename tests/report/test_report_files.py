"""Files from strangers: refused with a clear message, and nothing of theirs is run or unpacked."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hesscope.errors import InputError
from hesscope.report import load_result
from hesscope.results.loading import result_files
from report.samples import sample


class Bomb:
    """Would write a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"open({str(self.path)!r}, 'w').write('run')",)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return sample().save(tmp_path / "analysis")


def test_pickle_inside_the_archive_is_refused_and_not_run(saved: Path, tmp_path: Path) -> None:
    trap = np.array([Bomb(tmp_path / "trap")], dtype=object)
    with np.load(saved.with_suffix(".npz")) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(saved.with_suffix(".npz"), **{**arrays, "a0": trap})
    with pytest.raises(InputError, match="pickled objects are never loaded"):
        load_result(saved)
    assert not (tmp_path / "trap").exists()


def test_a_plain_pickle_is_refused_and_not_run(saved: Path, tmp_path: Path) -> None:
    saved.with_suffix(".npz").write_bytes(pickle.dumps(Bomb(tmp_path / "trap")))
    with pytest.raises(InputError, match="whole archive"):
        load_result(saved)
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize("name", ["../../outside.npy", "/etc/outside.npy", "a0.npy/../../x", "a0.py"])
def test_paths_in_the_archive_are_refused(saved: Path, name: str) -> None:
    with zipfile.ZipFile(saved.with_suffix(".npz"), "a") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(InputError, match="nothing was unpacked"):
        load_result(saved)


def test_archive_that_swells_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hesscope.results.loading.MOST_BYTES", 1000)
    with pytest.raises(InputError, match="must fit"):
        load_result(saved)


def test_truncated_json_is_refused(saved: Path) -> None:
    saved.write_text(saved.read_text()[:-200])
    with pytest.raises(InputError, match="truncated"):
        load_result(saved)


def test_deep_json_is_refused(saved: Path) -> None:
    saved.write_text('{"format": 1, "result": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(InputError, match="nest"):
        load_result(saved)


@pytest.mark.parametrize("kind", ["os", "Path", "builtins.eval", "hesscope.cli.main"])
def test_unknown_kinds_are_refused(saved: Path, kind: str) -> None:
    saved.write_text(json.dumps({"format": 1, "result": {"$kind": kind, "fields": {}}}))
    with pytest.raises(InputError, match="unknown kind"):
        load_result(saved)


@pytest.mark.parametrize(
    "body", ["[]", "null", '{"format": 1}', '{"format": 1, "result": {"$kind": "Claim", "fields": {}}}']
)
def test_json_that_is_no_result_is_refused(saved: Path, body: str) -> None:
    saved.write_text(body)
    with pytest.raises(InputError):
        load_result(saved)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must exist"):
        load_result(tmp_path / "nothing.json")
    with pytest.raises(InputError, match="at least one result"):
        result_files([tmp_path])
