"""Curvature along a run of the Trainer of transformers."""

from __future__ import annotations

import os
from typing import Any

from ..monitor.monitor import Monitor
from .needed import base_of

_Base: Any = base_of("transformers", "TrainerCallback", "hf")


class CurvatureCallback(_Base):  # type: ignore[misc]
    """Reads the curvature after optimiser steps and logs it with `trainer.log`, so that every tracker gets it.

    Made with the trainer and added to it:

        trainer.add_callback(CurvatureCallback(trainer, every=20))

    loss, data: as in `hs.Monitor`. Without a loss the model's own is taken; without data the first evaluation batches,
    else the first training batches. Other arguments go to `hs.Monitor`; `out` is by default `curvature.jsonl` in
    `args.output_dir`. The numbers are logged as `curvature/...`; `callback.monitor` holds them.
    """

    def __init__(
        self,
        trainer: Any,
        loss: Any = None,
        data: Any = None,
        *,
        out: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        self._trainer, self._loss, self._data, self._out, self._settings = trainer, loss, data, out, settings
        self.monitor: Monitor | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Make the monitor; what is wrong with its arguments is said before the first step."""
        self.close()
        out = self._out or os.path.join(args.output_dir, "curvature.jsonl")
        self.monitor = Monitor(given["model"], self._loss, self._batches(), out=out, **self._settings)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self.monitor is None:
            return
        reading = self.monitor.step(state.global_step, given["optimizer"])
        if reading is not None:
            self._trainer.log({f"curvature/{name}": value for name, value in reading.numbers().items()})

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.close()

    def close(self) -> None:
        """Save what a restart needs and let go of the file."""
        if self.monitor is not None:
            self.monitor.close()

    def _batches(self) -> Any:
        if self._data is not None:
            return self._data
        trainer = self._trainer
        return trainer.get_train_dataloader() if trainer.eval_dataset is None else trainer.get_eval_dataloader()
