"""Readings in MLflow."""

from __future__ import annotations

import os
from pathlib import Path

from . import PREFIX, Sink


class MlflowSink:
    """The run that is under way, else one of our own, in a folder `mlruns` beside the file unless a place is set."""

    def __init__(self, path: Path) -> None:
        import mlflow

        self._mlflow = mlflow
        active = mlflow.active_run()
        self._own = active is None
        if active is None:
            if "MLFLOW_TRACKING_URI" not in os.environ:
                mlflow.set_tracking_uri((path.parent.absolute() / "mlruns").as_uri())
            active = mlflow.start_run(run_name=path.stem)
        self._id = active.info.run_id

    def write(self, step: int, numbers: dict[str, float]) -> None:
        named = {PREFIX + _allowed(name): value for name, value in numbers.items()}
        self._mlflow.log_metrics(named, step=step, run_id=self._id)

    def close(self) -> None:
        if self._own:
            self._mlflow.end_run()


def _allowed(name: str) -> str:
    """MLflow's names hold letters, digits and a few signs."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)


def open_sink(path: Path) -> Sink:
    """The tracker for this run."""
    return MlflowSink(path)
