"""Every tracker gets every number, read back from its own files."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hesscope as hs

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randint(0, 3, (24,), generator=torch.Generator().manual_seed(1))


def _watched(folder: Path, to: Any) -> list[hs.Reading]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    before = torch.get_rng_state()
    with hs.Monitor(
        model, "cross_entropy", (X, Y), budget=None, out=folder / "run.jsonl", to=to, on_error="raise"
    ) as monitor:
        found = [monitor.step(step) for step in range(3)]
    assert torch.equal(before, torch.get_rng_state())
    return [reading for reading in found if reading is not None]


def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    readings = _watched(tmp_path, "tensorboard")
    events = EventAccumulator(str(tmp_path / "run.tensorboard"))
    events.Reload()
    logged = events.Scalars("curvature/sharpness")
    assert [event.step for event in logged] == [0, 1, 2]
    assert [event.value for event in logged] == pytest.approx([r.sharpness for r in readings], rel=1e-6)


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    _watched(tmp_path, "wandb")
    assert list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))


def test_wandb_run_under_way_is_used_and_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=str(tmp_path))
    readings = _watched(tmp_path, "wandb")
    assert wandb.run is run
    assert run.summary["curvature/sharpness"] == pytest.approx(readings[-1].sharpness)
    run.finish()


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    readings = _watched(tmp_path, "mlflow")
    client = mlflow.MlflowClient()
    runs = [run for e in client.search_experiments() for run in client.search_runs([e.experiment_id])]
    history = client.get_metric_history(runs[0].info.run_id, "curvature/sharpness")
    assert [m.step for m in history] == [0, 1, 2]
    assert [m.value for m in history] == pytest.approx([r.sharpness for r in readings])


def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path / "trackio", raising=False)
    readings = _watched(tmp_path, "trackio")
    (database,) = (tmp_path / "trackio").glob("*.db")
    rows = sqlite3.connect(database).execute("select step, metrics from metrics order by step").fetchall()
    assert [step for step, _ in rows] == [0, 1, 2]
    assert [json.loads(body)["curvature/sharpness"] for _, body in rows] == pytest.approx(
        [r.sharpness for r in readings]
    )


def test_several_at_once(tmp_path: Path) -> None:
    class Kept:
        def __init__(self) -> None:
            self.steps: list[int] = []
            self.closed = False

        def write(self, step: int, numbers: dict[str, float]) -> None:
            assert numbers["sharpness"] > 0
            self.steps.append(step)

        def close(self) -> None:
            self.closed = True

    kept = Kept()
    _watched(tmp_path, ["tensorboard", kept])
    assert kept.steps == [0, 1, 2]
    assert kept.closed
