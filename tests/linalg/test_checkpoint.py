"""Killed runs go on and end with the same bits; files that do not belong or are damaged are refused."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hesscope.errors import InputError
from hesscope.linalg import eigenpairs, spectral_density
from hesscope.operators import Counted
from hesscope.rng import Rng
from linalg._killed import run
from linalg.cases import Rotated, network_like
from offspring import Child

KILLED = ["eigenpairs", "density", "xtrace", "cg", "blocks"]
# How many calls for products a run survives below: more than it makes between two states.
SURVIVES = {
    "eigenpairs": 1,
    "density": 1,
    "chebyshev": 13,
    "cg": 1,
    "minres": 1,
    "xtrace": 2,
    "hutch++": 3,
    "xnystrace": 1,
    "hutchinson": 25,
    "diagonal": 2,
    "row_norms": 2,
    "blocks": 3,
    "sampled blocks": 1,
}


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[k], second[k]) for k in first)


def _note(spent: list[int], count: int, _: object) -> None:
    spent.append(count)


def test_kill_minus_nine_in_the_middle(tmp_path: Path) -> None:
    processes = {what: Child(run, what, str(tmp_path / what), 0.1, folder=tmp_path) for what in KILLED}
    while any(process.code is None for process in processes.values()):
        for what, process in processes.items():
            if process.code is None and list((tmp_path / what).glob("state-000000[3-9]-*.npz")):
                process.send(signal.SIGKILL)
        time.sleep(0.01)
    assert [process.code for process in processes.values()] == [-signal.SIGKILL] * len(KILLED)
    for what in KILLED:
        spent: list[int] = []
        resumed = run(what, str(tmp_path / what), on_product=partial(_note, spent))
        whole = run(what, None)
        assert same(resumed, whole)
        assert 0 < len(spent) <= int(whole["products"]) - 3


class Stop(Exception):
    pass


@pytest.mark.parametrize("what", SURVIVES)
def test_stopped_after_every_single_product(what: str, tmp_path: Path) -> None:
    """Every step is a place where a run may die: here each call survives for one step only."""
    calls = 0

    def die(count: int, _: float) -> None:
        nonlocal calls
        calls += 1
        if calls > SURVIVES[what]:
            raise Stop

    deaths = 0
    for _ in range(1000):
        try:
            calls = 0
            found = run(what, str(tmp_path / "state"), on_product=die)
            break
        except Stop:
            deaths += 1
    assert same(found, run(what, None))
    assert deaths >= 2


@pytest.mark.parametrize("what", SURVIVES)
def test_a_finished_run_is_read_back_without_products(what: str, tmp_path: Path) -> None:
    first = run(what, str(tmp_path))
    spent: list[int] = []
    assert same(run(what, str(tmp_path), on_product=lambda count, _: spent.append(count)), first)
    assert not spent


def test_the_folder_holds_only_what_is_needed(tmp_path: Path) -> None:
    run("eigenpairs", str(tmp_path))
    assert len(list(tmp_path.glob("vector-*"))) <= 2 * 22
    assert len(list(tmp_path.glob("state-*"))) == 2
    assert not list(tmp_path.glob("*.partial*"))


def test_a_warm_start_can_be_resumed(tmp_path: Path) -> None:
    op = Rotated(network_like(700))
    start = eigenpairs(op, k=5, tol=1e-6).vectors

    def die(count: int, _: float) -> None:
        if count == 2:
            raise Stop

    for _ in range(100):
        try:
            found = eigenpairs(Counted(op, on_product=die), k=5, start=start, resume=tmp_path)
            break
        except Stop:
            continue
    np.testing.assert_array_equal(found.vectors, eigenpairs(op, k=5, start=start).vectors)


def test_other_arguments_are_refused(tmp_path: Path) -> None:
    op = Rotated(network_like(700))
    eigenpairs(op, k=3, resume=tmp_path)
    with pytest.raises(InputError, match="resume needs the same arguments"):
        eigenpairs(op, k=4, resume=tmp_path)
    with pytest.raises(InputError, match="resume needs the same arguments"):
        eigenpairs(op, k=3, rng=Rng(1), resume=tmp_path)
    with pytest.raises(InputError, match="resume needs the same shape"):
        eigenpairs(Rotated(network_like(701)), k=3, resume=tmp_path)
    with pytest.raises(InputError, match="resume needs the same algorithm"):
        spectral_density(op, resume=tmp_path)


class Named(Rotated):
    fingerprint = "epoch 1"


def test_another_operator_is_refused(tmp_path: Path) -> None:
    op = Named(network_like(700))
    eigenpairs(op, k=3, resume=tmp_path)
    op.fingerprint = "epoch 2"
    with pytest.raises(InputError, match="same operator_fingerprint"):
        eigenpairs(op, k=3, resume=tmp_path)


@pytest.mark.parametrize("pattern", ["state-*", "vector-*", "header-*"])
@pytest.mark.parametrize("harm", ["truncate", "garbage", "delete", "pickle"])
def test_damaged_files_are_refused(pattern: str, harm: str, tmp_path: Path) -> None:
    run("eigenpairs", str(tmp_path))
    for path in tmp_path.glob(pattern):
        if harm == "truncate":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        elif harm == "garbage":
            path.write_bytes(b"not a state")
        elif harm == "pickle":
            with open(path, "wb") as handle:
                np.save(handle, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        else:
            path.unlink()
    if harm == "delete" and pattern in ("state-*", "header-*"):
        # Without a state there is nothing to go on from; a header is written again.
        assert same(run("eigenpairs", str(tmp_path)), run("eigenpairs", None))
        return
    with pytest.raises(InputError, match="complete"):
        run("eigenpairs", str(tmp_path))


def test_leftovers_of_a_killed_write_are_ignored(tmp_path: Path) -> None:
    first = run("density", str(tmp_path))
    (tmp_path / "state-0009999-0-700.npz.partial1").write_bytes(b"half")
    (tmp_path / "vector-0009999-0-700.npy").write_bytes(b"a vector that no state names")
    assert same(run("density", str(tmp_path)), first)
