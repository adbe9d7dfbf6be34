"""Nothing of others is removed or overwritten; what is ours is whole or not there; one run at a time."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hesscope as hs
from cli.problems import MLP
from hesscope.cli import main
from hesscope.errors import FileError, InputError
from hesscope.files import HOST, replace, unfinished
from hesscope.folders import MARKER, Lock, StateFolder
from hesscope.linalg import Estimate, eigenpairs
from hesscope.result import Result
from hesscope.results.claims import Outcome
from linalg.cases import Rotated, network_like
from offspring import Child, command

LEAN = ["--no-check", "--no-gauss-newton", "--no-block-maps", "--no-per-layer", "--no-landscape", "--decouple", "0"]
QUICK = ["--k", "3", "--smallest", "1", "--probes", "2", "--steps", "20", "--formats", "png", *LEAN]


def problem() -> hs.Problem:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 30), nn.Tanh(), nn.Linear(30, 5))
    x, y = torch.randn(60, 10, generator=hs.Rng(1).torch()), torch.arange(60) % 5
    return hs.Problem.of(model, "cross_entropy", (x, y))


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def users_folder(folder: Path) -> dict[str, bytes]:
    (folder / "deep").mkdir(parents=True)
    (folder / "thesis.txt").write_text("three years of work")
    (folder / "deep/weights.npz").write_bytes(b"\0\1\2")
    return content(folder)


def config() -> Any:
    from hesscope.analysis import AnalyzeConfig

    parts = dict.fromkeys(("check", "gauss_newton", "block_maps", "per_layer", "landscape"), False)
    return AnalyzeConfig(k=3, smallest=1, probes=2, steps=10, decouple=0, **parts)


def test_analyze_leaves_a_folder_of_others_alone(tmp_path: Path) -> None:
    before = users_folder(tmp_path / "mine")
    with pytest.raises(FileError, match=r"new, empty, or made by Hesscope.*'deep' and more"):
        hs.analyze(problem(), config(), resume=tmp_path / "mine")
    assert content(tmp_path / "mine") == before


def test_the_command_leaves_a_state_folder_of_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlp.py").write_text(MLP)
    before = users_folder(tmp_path / "out/state")
    assert main(["analyze", "mlp.py:make_problem", "--out", "out", *QUICK]) == 3
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert "Choose another folder" in error
    assert content(tmp_path / "out/state") == before


def test_what_others_add_to_a_state_folder_survives_the_end_of_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    first = StateFolder(folder)
    first.write("ours.bin", lambda f: f.write(b"1"))
    first.close()
    (folder / "notes.txt").write_text("mine")
    with StateFolder(folder) as again, pytest.raises(FileError, match="only replaces files that it wrote"):
        again.write("notes.txt", lambda f: f.write(b"2"))
    StateFolder(folder).clear()
    assert content(folder) == {"notes.txt": b"mine"}


def test_what_a_finished_analysis_leaves_behind_serves_the_next_and_gives_way_to_another(tmp_path: Path) -> None:
    """Its stages, which the same problem takes up again and another one replaces."""
    first = hs.analyze(problem(), config(), resume=tmp_path / "s")
    seen: list[str] = []

    def watch(stage: str, expected: int) -> Any:
        seen.append(stage)
        return lambda count, seconds: None

    again = hs.analyze(problem(), config(), resume=tmp_path / "s", watch=watch)
    assert "trace" not in seen
    np.testing.assert_array_equal(again.largest.values, first.largest.values)
    other = problem().at({"0.weight": torch.zeros(30, 10)}, partial=True)
    moved = hs.analyze(other, config(), resume=tmp_path / "s", watch=watch)
    assert "trace" in seen
    np.testing.assert_array_equal(moved.largest.values, hs.analyze(other, config()).largest.values)
    (tmp_path / "s" / "thesis.txt").write_text("mine")
    hs.analyze(problem(), config(), resume=tmp_path / "s")
    assert (tmp_path / "s" / "thesis.txt").read_text() == "mine"


def test_a_list_cannot_name_files_of_other_folders(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("mine")
    with StateFolder(tmp_path / "state"):
        pass
    with open(tmp_path / "state" / MARKER, "a") as handle:
        handle.write("+ ../outside.txt\n+ ..\n")
    StateFolder(tmp_path / "state").clear()
    assert (tmp_path / "outside.txt").read_text() == "mine"


def test_a_damaged_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("something else")
    with pytest.raises(FileError, match="must be complete"):
        StateFolder(tmp_path)
    assert content(tmp_path) == {MARKER: b"something else"}


def test_another_analysis_in_the_folder_of_a_stopped_one_is_refused(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop_at_the_trace(stage: str, expected: int) -> Any:
        if stage == "trace":
            raise Stop
        return lambda count, seconds: None

    with pytest.raises(Stop):
        hs.analyze(problem(), config(), resume=tmp_path / "s", watch=stop_at_the_trace)
    before = content(tmp_path / "s")
    assert "smallest.json" in before
    other = problem().at({"0.weight": torch.zeros(30, 10)}, partial=True)
    with pytest.raises(FileError, match="another one was stopped"):
        hs.analyze(other, config(), resume=tmp_path / "s")
    assert content(tmp_path / "s") == before
    found = hs.analyze(problem(), config(), resume=tmp_path / "s")
    assert found.largest.values[0] == hs.analyze(problem(), config()).largest.values[0]


# --- results in two files ---


@dataclass(frozen=True, eq=False)
class Pair(Result):
    number: int
    array: Any


def save_and_die(stem: str, last: int) -> None:
    """At the `last` call of the system; the number is what is saved."""
    calls = 0

    def counting(old: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == last:
            os._exit(9)
        return old(*arguments, **options)

    for name in ("replace", "fsync", "unlink"):
        setattr(os, name, partial(counting, getattr(os, name)))
    Outcome("x", {"n": last}, {"a": np.full(4, last)}, ()).save(stem)


def test_a_result_killed_at_any_step_of_saving_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    stem = str(tmp_path / "files/r")
    versions = []
    for step in range(12):
        code = Child(save_and_die, stem, step, folder=tmp_path).wait()
        found = Result.load(stem)
        number = found.config["n"]  # type: ignore[attr-defined]
        assert (found.data["a"] == number).all()  # type: ignore[attr-defined]
        versions.append((code, number == step))
    codes = [code for code, _ in versions]
    assert codes[0] == 0
    assert 9 in codes[1:]
    assert 0 in codes[1:]
    assert {new for code, new in versions if code == 9} == {True, False}
    assert all(new for code, new in versions if code == 0)
    assert sorted(p.name for p in Path(stem).parent.iterdir()) == ["r.json", "r.npz"]


@pytest.mark.parametrize("name", ["r.json", "r.npz"])
def test_files_of_others_are_not_replaced_by_a_result(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"format": 1, "name": "my package"}')
    before = content(tmp_path)
    with pytest.raises(FileError, match="only replaces files that it wrote"):
        Estimate(1.0, 0.0, 1, "dense").save(tmp_path / "r")
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", ["r.json", "r.npz", "r.csv"])
def test_links_of_others_are_not_replaced(name: str, tmp_path: Path) -> None:
    """Also one to a disk that is not there now: it looks as if there were nothing."""
    (tmp_path / name).symlink_to(tmp_path / "away" / name)
    found = Estimate(1.0, 0.0, 1, "dense")
    with pytest.raises(FileError, match="only replaces files that it wrote"):
        _ = found.to_csv(tmp_path / name) if name == "r.csv" else found.save(tmp_path / "r")
    assert (tmp_path / name).is_symlink()
    assert len(list(tmp_path.iterdir())) == 1


def test_arrays_of_another_result_are_refused(tmp_path: Path) -> None:
    Pair(1, np.ones(3)).save(tmp_path / "a")
    Pair(2, np.zeros(3)).save(tmp_path / "b")
    (tmp_path / "a.npz").write_bytes((tmp_path / "b.npz").read_bytes())
    with pytest.raises(InputError, match="saved with its"):
        Pair.load(tmp_path / "a")


def test_many_threads_save_one_result_and_it_is_whole(tmp_path: Path) -> None:
    def save(number: int) -> None:
        for _ in range(5):
            Pair(number, np.full(1000, number)).save(tmp_path / "r")

    threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Pair.load(tmp_path / "r")
    assert (found.array == found.number).all()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.json", "r.npz"]


def test_pages_and_figures_of_others_are_not_replaced(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    from hesscope.plots.export import FORMATS, save_figures
    from hesscope.report import write_report

    def draw(suffix: str) -> None:
        save_figures({"mine": Figure()}, tmp_path, (suffix,))

    result = Estimate(1.0, 0.0, 1, "dense")
    write_report(result, tmp_path / "page.html")
    write_report(result, tmp_path / "page.html")
    save_figures({"f": Figure()}, tmp_path)
    assert len(save_figures({"f": Figure()}, tmp_path)) == 3
    for suffix in ("html", *FORMATS):
        mine = tmp_path / f"mine.{suffix}"
        mine.write_text("my own")
        write = partial(write_report, result, mine) if suffix == "html" else partial(draw, suffix)
        with pytest.raises(FileError, match="only replaces"):
            write()
        assert mine.read_text() == "my own"


# --- one run at a time ---


def test_a_second_run_in_a_folder_is_refused_while_the_first_is_at_work(tmp_path: Path) -> None:
    op = Rotated(network_like(700))
    second: list[BaseException] = []

    def try_again(count: int, _: float) -> None:
        if count == 3 and not second:
            try:
                eigenpairs(op, k=3, resume=tmp_path)
            except FileError as error:
                second.append(error)

    first = eigenpairs(hs.Counted(op, on_product=try_again), k=3, resume=tmp_path)
    assert "one run at a time" in str(second[0])
    assert f"process {os.getpid()}" in str(second[0])
    np.testing.assert_array_equal(first.values, eigenpairs(op, k=3).values)
    assert not list(tmp_path.glob(".*"))


def test_locks_of_dead_processes_are_taken_over(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    path = tmp_path / ".lock"
    path.write_text(json.dumps({"pid": gone.pid, "host": HOST, "began": "1", "at": 1}))
    with Lock(path, "it", wait=0):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()
    # A process that lives, but began later than the one that took the lock.
    path.write_text(json.dumps({"pid": os.getpid(), "host": HOST, "began": "1", "at": 1}))
    with Lock(path, "it", wait=0):
        pass
    path.write_text(json.dumps({"pid": gone.pid, "host": "elsewhere", "began": "1", "at": 1}))
    with pytest.raises(FileError, match="on elsewhere is at work"):
        Lock(path, "it", wait=0).acquire()
    assert list(tmp_path.iterdir()) == [path]


def test_many_threads_take_turns(tmp_path: Path) -> None:
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(10):
            with Lock(tmp_path / ".lock", "it", wait=1800):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.001)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_two_commands_in_one_output_folder(tmp_path: Path) -> None:
    (tmp_path / "mlp.py").write_text(
        MLP
        + """
import pathlib, time
plain = make_problem
def slow():
    while not pathlib.Path("go on").exists():
        time.sleep(0.02)
    return plain()
"""
    )
    first = command(["analyze", "mlp.py:slow", "--out", "out", *QUICK], tmp_path)
    while not list(tmp_path.glob("out/.*.lock")):
        assert first.code is None
        time.sleep(0.02)
    second = command(["analyze", "mlp.py:plain", "--out", "out", *QUICK], tmp_path)
    assert second.wait() == 3
    assert f"process {first.pid}" in second.err
    assert "choose another folder" in second.err
    (tmp_path / "go on").touch()
    assert first.wait() == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        *("analysis.json", "analysis.npz", "figures", "report.html", "state"),
    ]


# --- a disk that does not take it ---


def little_room(arguments: list[str]) -> int:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    return main(arguments)


def test_a_full_disk_loses_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlp.py").write_text(MLP)
    arguments = ["analyze", "mlp.py:make_problem", "--out", "out", *QUICK]
    assert main(arguments) == 0
    before = content(tmp_path / "out")
    full = Child(little_room, arguments, folder=tmp_path)
    assert full.wait() == 3
    assert "there must be room to write" in full.err.strip().splitlines()[-1]
    assert "Traceback" not in full.err
    after = content(tmp_path / "out")
    assert after["report.html"] == before["report.html"]
    assert isinstance(Result.load(tmp_path / "out/analysis"), Result)
    assert not [name for name in after if name.endswith((".partial", ".lock"))]


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "room"), (errno.EROFS, "must allow it"), (errno.EACCES, "must allow it"), (errno.EIO, "writable")],
)
def test_what_the_system_says_is_explained(
    number: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "file"
    place.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(FileError, match=message):
        replace(place, lambda f: f.write(b"new"))
    assert content(tmp_path) == {"file": b"old"}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="file"):
        Estimate(1.0, 0.0, 1, "dense").save(tmp_path / "file" / "r")
    with pytest.raises(FileError, match="kept in a folder"):
        eigenpairs(Rotated(network_like(700)), k=3, resume=tmp_path / "file")


def test_unfinished_writes_of_dead_processes_are_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    living = unfinished(tmp_path / "state.npz")
    dead = living.with_name(living.name.replace(f"-{os.getpid()}-", f"-{gone.pid}-"))
    users = tmp_path / "state.npz.partial"
    StateFolder(tmp_path).close()
    for path in (living, dead, users):
        path.write_bytes(b"half")
    StateFolder(tmp_path).close()
    assert sorted(content(tmp_path)) == sorted([living.name, users.name, MARKER])
