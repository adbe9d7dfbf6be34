"""The file of a run survives restarts, kills and other monitors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import hesscope as hs
from hesscope.errors import FileError
from hesscope.results.monitoring import load_run
from monitor.runs import Ticks, monitor_of, network, train


def _steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()[1:]]


def test_a_restart_goes_on_warm(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    clock = Ticks()
    with monitor_of(model, tmp_path, every=2, clock=clock) as monitor:
        for step in range(6):
            clock.now += 1.0
            train(model, optimizer, range(step, step + 1), monitor)
    with monitor_of(model, tmp_path, every=2) as monitor:
        found = train(model, optimizer, range(6, 10), monitor)
    assert _steps(tmp_path / "run.jsonl") == [0, 2, 4, 6, 8]
    assert found[0].warm
    assert found[0].products <= 5
    assert found[0].share is not None  # the six seconds of before still count


def test_steps_that_are_trained_again_replace_their_lines(tmp_path: Path) -> None:
    """A restart from an older checkpoint: no step stands twice, and nothing is lost."""
    path = tmp_path / "run.jsonl"
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with monitor_of(model, tmp_path, every=2) as monitor:
        train(model, optimizer, 10, monitor)
    before = path.read_text().splitlines()
    with monitor_of(model, tmp_path, every=2) as monitor:
        train(model, optimizer, range(5, 9), monitor)
    assert _steps(path) == [0, 2, 4, 6, 8]
    assert path.read_text().splitlines()[:4] == before[:4]
    aside = (tmp_path / "run.jsonl.superseded").read_text().splitlines()
    assert [json.loads(line) for line in aside] == [json.loads(line) for line in before[4:]]


@pytest.mark.parametrize("tail", ['{"step": 4, "lo', '{"step": 4, "loss": 1}garbage\n', "\x00\x00\x00"])
def test_a_half_written_line_is_repaired(tail: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with monitor_of(model, tmp_path, every=2) as monitor:
        train(model, optimizer, 4, monitor)
    with open(path, "a") as handle:
        handle.write(tail)
    assert load_run(path).damaged == 1
    with monitor_of(model, tmp_path, every=2) as monitor:
        train(model, optimizer, range(4, 7), monitor)
    assert _steps(path) == [0, 2, 4, 6]
    assert load_run(path).damaged == 0


def test_a_kill_before_the_first_line_was_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"hesscope-run": 1, "ver')
    with monitor_of(network(), tmp_path) as monitor:
        monitor.step(0)
    assert _steps(path) == [0]


def test_a_state_that_is_damaged_costs_products_only(tmp_path: Path) -> None:
    model = network()
    with monitor_of(model, tmp_path) as monitor:
        monitor.step(0)
    (tmp_path / "run.jsonl.state.npz").write_bytes(b"no archive")
    with monitor_of(model, tmp_path) as monitor:
        found = monitor.step(1)
    assert found is not None
    assert not found.warm
    assert _steps(tmp_path / "run.jsonl") == [0, 1]


def test_two_monitors_do_not_share_a_file(tmp_path: Path) -> None:
    model = network()
    first = monitor_of(model, tmp_path)
    with pytest.raises(FileError, match="one run at a time"):
        monitor_of(model, tmp_path)
    first.close()
    monitor_of(model, tmp_path).close()


def test_a_monitor_that_is_dropped_lets_go_of_its_file(tmp_path: Path) -> None:
    model = network()
    monitor = monitor_of(model, tmp_path)
    del monitor
    monitor_of(model, tmp_path).close()


def test_the_file_of_another_model_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    monitor_of(network(), tmp_path).close()
    before = path.read_bytes()
    with pytest.raises(FileError, match="same model"):
        monitor_of(torch.nn.Linear(6, 3), tmp_path)
    assert path.read_bytes() == before


def test_a_run_is_a_result(tmp_path: Path) -> None:
    """Its lines load as one, which saves and loads like any other."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    with monitor_of(model, tmp_path, slow_every=2) as monitor:
        train(model, optimizer, 8, monitor)
        run = monitor.run
    again = hs.Result.load(run.save(tmp_path / "result"))
    assert isinstance(again, hs.MonitoredRun)
    assert again.readings == run.readings
    assert run.column("sharpness").tolist() == [r.sharpness for r in run.readings]
    assert run.column("trace")[0] > 0
