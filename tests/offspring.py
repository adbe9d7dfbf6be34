"""Processes to be killed, starved or joined, forked from one that has loaded torch: alone each takes seconds to do so."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(
    [
        *("torch", "torch.distributed", "torch.multiprocessing.spawn", "matplotlib.figure", "scipy.optimize"),
        *("torch.fx.experimental.symbolic_shapes", "matplotlib.backends.backend_agg", "plotly.graph_objects", "pytest"),
        *("hesscope.cli.command_line", "hesscope.curvature.problem", "hesscope.linalg", "hesscope.analysis.run"),
        *("hesscope.cli.source", "hesscope.plots", "hesscope.report", "hesscope.kron.comparison"),
    ]
)


class Child:
    """A process of its own that runs `work(*arguments)` in a folder, with what it says in two files there."""

    def __init__(
        self, work: Callable[..., Any], *arguments: Any, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        Child.count += 1
        self._said = [folder / f".{Child.count}-{name}" for name in ("stdout", "stderr")]
        self._process = FORKING.Process(
            target=_run, args=(work, arguments, folder, self._said, dict(environment or {})), daemon=True
        )
        self._process.start()

    count = 0

    @property
    def pid(self) -> int:
        """Of the process, as the system knows it."""
        assert self._process.pid
        return self._process.pid

    @property
    def code(self) -> int | None:
        """With which it ended, or the negative number of the signal; None as long as it runs."""
        return self._process.exitcode

    def send(self, number: signal.Signals) -> None:
        """A signal; one that has just ended, which its code will tell of, needs none."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, seconds: float = 1800) -> int:
        """Until it has ended; its code."""
        self._process.join(seconds)
        assert self._process.exitcode is not None, "it has not ended"
        return self._process.exitcode

    @property
    def out(self) -> str:
        """What it has printed."""
        return self._said[0].read_text()

    @property
    def err(self) -> str:
        """What it has complained of."""
        return self._said[1].read_text()


def command(arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Child:
    """`hesscope ...` in a folder."""
    return Child(_command, list(arguments), folder=folder, environment=environment)


def join(rank: int, processes: int, meeting: Path) -> None:
    """Takes part in a group of processes that find each other by a new file: a port that is free now may be taken then."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    patience = timedelta(minutes=20)  # at any load
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=processes, timeout=patience)


def _command(arguments: list[str]) -> int:
    from hesscope.cli import main

    return main(arguments)


def _run(
    work: Callable[..., Any], arguments: Sequence[Any], folder: Path, said: list[Path], environment: dict[str, str]
) -> None:
    # A shell that runs the tests in the background lets its children ignore ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.update(environment)
    for number, path in enumerate(said, start=1):
        sys.stdout.flush()
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    import torch

    torch.set_num_threads(1)
    sys.exit(work(*arguments))
