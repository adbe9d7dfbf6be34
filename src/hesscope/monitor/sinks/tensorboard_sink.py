"""Readings in TensorBoard."""

from __future__ import annotations

from pathlib import Path

from . import PREFIX, Sink


class TensorBoardSink:
    """Scalars in a folder beside the run, `NAME.tensorboard`."""

    def __init__(self, path: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(path.with_suffix(".tensorboard")))

    def write(self, step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(PREFIX + name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def open_sink(path: Path) -> Sink:
    """The tracker for this run."""
    return TensorBoardSink(path)
