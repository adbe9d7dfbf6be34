"""A monitor never stops a training, unless asked: what went wrong is in the file and in the log."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hesscope.errors import InputError
from monitor.runs import monitor_of, network, train


def _diverged(model: nn.Sequential) -> None:
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")


def test_non_finite_weights_are_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    monitor = monitor_of(model, tmp_path, on_error="log")
    assert monitor.step(0) is not None
    _diverged(model)
    with caplog.at_level(logging.WARNING):
        found = monitor.step(1)
        monitor.step(2)
    assert found is not None
    assert found.sharpness is None
    assert "finite" in str(found.error)
    assert [r.error is not None for r in monitor.run.readings] == [False, True, True]
    assert sum("finite" in record.message for record in caplog.records) == 1  # said once, not at every step
    monitor.close()


def test_readings_come_back_with_the_weights(tmp_path: Path) -> None:
    model = network()
    good = {name: value.clone() for name, value in model.state_dict().items()}
    with monitor_of(model, tmp_path, on_error="log") as monitor:
        first = monitor.step(0)
        _diverged(model)
        monitor.step(1)
        model.load_state_dict(good)
        again = monitor.step(2)
    assert first is not None
    assert again is not None
    assert again.sharpness == pytest.approx(first.sharpness, rel=0.02)


def test_raised_where_that_was_asked_for(tmp_path: Path) -> None:
    model = network()
    with monitor_of(model, tmp_path, on_error="raise") as monitor:
        _diverged(model)
        with pytest.raises(InputError, match="finite"):
            monitor.step(0)


class _Broken:
    def write(self, step: int, numbers: dict[str, float]) -> None:
        raise ConnectionError("the tracker is away")

    def close(self) -> None:
        raise ConnectionError("the tracker is away")


def test_a_tracker_that_fails_loses_only_itself(tmp_path: Path) -> None:
    with monitor_of(network(), tmp_path, on_error="log", to=_Broken()) as monitor:
        assert monitor.step(0) is not None
    assert len(monitor.run.readings) == 1


def test_a_file_that_vanishes(tmp_path: Path) -> None:
    """The folder is removed under our feet: training goes on, and the reading is still handed back."""
    folder = tmp_path / "runs"
    monitor = monitor_of(network(), folder, on_error="log")
    for path in sorted(folder.iterdir()):
        path.unlink()
    folder.rmdir()
    assert monitor.step(0) is not None
    monitor.close()


def test_an_optimiser_of_another_model_is_noted(tmp_path: Path) -> None:
    model, other = network(), network(1)
    optimizer = torch.optim.Adam(other.parameters())
    with monitor_of(model, tmp_path, on_error="log") as monitor:
        found = monitor.step(0, optimizer)
    assert found is not None
    assert found.sharpness is not None
    assert found.preconditioned is None
    assert any("optimiser" in note for note in found.notes)


def test_a_model_that_changes_its_form(tmp_path: Path) -> None:
    """Layers that are frozen, or replaced by larger ones, during the training."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with monitor_of(model, tmp_path) as monitor:
        train(model, optimizer, 2, monitor)
        model[0].requires_grad_(False)
        frozen = monitor.step(2)
        model[2] = nn.Linear(8, 3, bias=False)
        smaller = monitor.step(3)
    assert frozen is not None
    assert smaller is not None
    assert set(frozen.binding) == {"2"}
    assert not frozen.warm or frozen.sharpness is not None
    assert smaller.error is None


@pytest.mark.parametrize("step", [-1, 1.5, "1", None, True])
def test_steps_that_are_none(step: Any, tmp_path: Path) -> None:
    with monitor_of(network(), tmp_path, on_error="log") as monitor:
        assert monitor.step(step) is None
        assert monitor.step(0) is not None


def test_steps_must_grow(tmp_path: Path) -> None:
    with monitor_of(network(), tmp_path) as monitor:
        monitor.step(3)
        with pytest.raises(InputError, match="must grow"):
            monitor.step(2)


def test_a_search_that_fails_begins_anew(tmp_path: Path) -> None:
    """What made it fail may be in what it remembers: one reading is lost, not all that follow."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with monitor_of(model, tmp_path, on_error="log") as monitor:
        train(model, optimizer, 2, monitor)
        remembered = monitor._reader.start
        assert remembered is not None
        spoiled = dataclasses.replace(remembered, matrix=np.full_like(remembered.matrix, np.nan))
        monitor._reader.start = spoiled
        lost, found = train(model, optimizer, range(2, 4), monitor)
    assert lost.error is not None
    assert found.error is None
    assert not found.warm
