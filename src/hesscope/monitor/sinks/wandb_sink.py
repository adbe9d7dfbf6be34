"""Readings in Weights & Biases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import PREFIX, Sink


class WandbSink:
    """The run that is under way, else one of our own, offline unless WANDB_MODE says otherwise."""

    def __init__(self, path: Path) -> None:
        import wandb

        self._own = wandb.run is None
        self._run: Any = wandb.run
        if self._own:
            mode: Any = os.environ.get("WANDB_MODE", "offline")
            self._run = wandb.init(project="hesscope", name=path.stem, dir=str(path.parent.absolute()), mode=mode)
        # The user's own steps may be counted in another way: ours go along as a number of their own.
        self._run.define_metric(f"{PREFIX}step")
        self._run.define_metric(f"{PREFIX}*", step_metric=f"{PREFIX}step")

    def write(self, step: int, numbers: dict[str, float]) -> None:
        self._run.log({f"{PREFIX}step": step} | {PREFIX + name: value for name, value in numbers.items()})

    def close(self) -> None:
        if self._own:
            self._run.finish()


def open_sink(path: Path) -> Sink:
    """The tracker for this run."""
    return WandbSink(path)
