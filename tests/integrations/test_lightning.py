"""The callback in a real Lightning training: same weights, logged by every logger, goes on after a restart."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hesscope.integrations.lightning import CurvatureCallback
from hesscope.results.monitoring import load_run

pytestmark = pytest.mark.filterwarnings("ignore")


class Classifier(pl.LightningModule):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Any:
        return self.net(x)

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), 0.01)


def _data() -> TensorDataset:
    draw = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(64, 6, generator=draw), torch.randint(0, 3, (64,), generator=draw))


def _fit(
    folder: Path, callback: CurvatureCallback | None, epochs: int = 2, **fit: Any
) -> tuple[Classifier, pl.Trainer]:
    pl.seed_everything(1, verbose=False)
    model = Classifier()
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=CSVLogger(str(folder), version=0),
        callbacks=[] if callback is None else [callback],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
        default_root_dir=str(folder),
    )
    loader = DataLoader(_data(), 16, shuffle=True)
    trainer.fit(model, loader, DataLoader(_data(), 32), **fit)
    return model, trainer


def test_the_training_is_the_same_and_the_logger_gets_the_numbers(tmp_path: Path) -> None:
    callback = CurvatureCallback(every=2, budget=None, on_error="raise", out=tmp_path / "run.jsonl")
    alone, _ = _fit(tmp_path / "a", None)
    watched, trainer = _fit(tmp_path / "b", callback)
    for name, value in alone.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    run = load_run(tmp_path / "run.jsonl")
    assert run.steps.tolist() == [1, 2, 4, 6, 8]
    assert run.settings["mode"] == "eval"
    rows = list(csv.DictReader((tmp_path / "b/lightning_logs/version_0/metrics.csv").open()))
    logged = [float(row["curvature/sharpness"]) for row in rows if row.get("curvature/sharpness")]
    assert logged == pytest.approx(run.column("sharpness").tolist())
    assert run.readings[-1].optimizer == "AdamW"
    assert float(trainer.callback_metrics["curvature/edge_ratio"]) == pytest.approx(run.readings[-1].edge_ratio)


def test_a_loss_and_data_of_its_own(tmp_path: Path) -> None:
    x, y = _data().tensors
    callback = CurvatureCallback(
        "cross_entropy", (x[:20], y[:20]), every=4, budget=None, on_error="raise", out=tmp_path / "run.jsonl"
    )
    _fit(tmp_path, callback, epochs=1)
    run = load_run(tmp_path / "run.jsonl")
    assert run.settings["examples"] == 20
    assert run.readings[0].gauss_newton_share is not None


def test_a_second_fit_goes_on_in_the_file(tmp_path: Path) -> None:
    """The same command again from the beginning: no step stands twice."""
    for _ in range(2):
        _fit(tmp_path, CurvatureCallback(every=2, budget=None, out=tmp_path / "run.jsonl"), epochs=1)
    steps = load_run(tmp_path / "run.jsonl").steps.tolist()
    assert steps == sorted(set(steps)) == [1, 2, 4]
