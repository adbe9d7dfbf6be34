"""Curvature along a run of Lightning's Trainer."""

from __future__ import annotations

import os
from typing import Any

from ..curvature.data import examples_in
from ..errors import refuse
from ..monitor.monitor import Monitor
from .needed import base_of

_Base: Any = base_of("lightning.pytorch", "Callback", "lightning")


class CurvatureCallback(_Base):  # type: ignore[misc]
    """Reads the curvature after optimiser steps and logs it to every logger of the trainer.

    loss, data: as in `hs.Monitor`. Without a loss the module's own `training_step` gives it; without data the first
    validation batches do, else the first training batches. Other arguments go to `hs.Monitor`; `out` is by default
    `curvature.jsonl` in the trainer's folder. The numbers are logged as `curvature/...`, also into
    `trainer.callback_metrics`, and `callback.monitor` holds them.
    """

    def __init__(
        self, loss: Any = None, data: Any = None, *, out: str | os.PathLike[str] | None = None, **settings: Any
    ) -> None:
        super().__init__()
        self._loss, self._data, self._out, self._settings = loss, data, out, settings
        self.monitor: Monitor | None = None
        self._read_at = -1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the monitor; what is wrong with its arguments is said before the first step."""
        self.close()
        out = self._out or os.path.join(trainer.log_dir or trainer.default_root_dir, "curvature.jsonl")
        data = self._data if self._data is not None else _first_loader(trainer)
        loss = training_loss if self._loss is None else self._loss
        self.monitor = Monitor(pl_module, loss, data, out=out, **self._settings)
        self._read_at = trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """One call per optimiser step: batches whose gradients are gathered count once."""
        if self.monitor is None or trainer.global_step == self._read_at:
            return
        self._read_at = trainer.global_step
        reading = self.monitor.step(trainer.global_step, trainer.optimizers)
        if reading is not None:
            numbers = {f"curvature/{name}": value for name, value in reading.numbers().items()}
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=trainer.global_step)
            pl_module.log_dict(numbers, on_step=True, on_epoch=False, logger=False)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.close()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.close()

    def close(self) -> None:
        """Save what a restart needs and let go of the file."""
        if self.monitor is not None:
            self.monitor.close()


def training_loss(model: Any, batch: Any) -> tuple[Any, int]:
    """(sum, count) from the module's own `training_step`, which gives the mean of a batch."""
    found = model.training_step(batch, 0)
    value = found["loss"] if isinstance(found, dict) else found
    if value is None:
        refuse("training_step must return the loss", "None", "Pass loss= to the callback.")
    count = examples_in(batch) or 1
    return value * count, count


def _first_loader(trainer: Any) -> Any:
    """The trainer's validation data, else its training data."""
    for loader in (trainer.val_dataloaders, trainer.train_dataloader):
        chosen = loader[0] if isinstance(loader, list | tuple) and loader else loader
        if chosen is not None and not (isinstance(loader, list | tuple) and not loader):
            return chosen
    refuse("the monitor needs data", "a trainer without loaders", "Pass data= to the callback.")
