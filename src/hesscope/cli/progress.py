"""Progress with time left, for whatever takes longer than two seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PATIENCE = 2.0


class ProgressBar:
    """One line on stderr for the stage under way; silent where nobody watches (no terminal, or --json)."""

    def __init__(self, console: Console, visible: bool) -> None:
        self._console, self._told = console, visible
        self._visible = visible and console.is_terminal
        self._started = time.perf_counter()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._live = False

    def __call__(self, stage: str, expected: int) -> Callable[[int, float], None]:
        """Told of each stage; returns the callback that `Counted` reports to."""
        if not self._visible:
            return lambda count, seconds: None
        for task in self._progress.task_ids:
            self._progress.remove_task(task)
        task = self._progress.add_task(escape(stage), total=expected or None, note="")
        self._show_if_slow()

        def on_product(count: int, seconds: float) -> None:
            # The count needed is only known at the end; the bar never claims to be done before.
            total = max(expected, int(1.15 * count) + 1)
            self._progress.update(task, completed=count, total=total, note=f"{count} products")
            self._show_if_slow()

        return on_product

    def stage(self, name: str) -> None:
        """Told of a stage without products."""
        self(name, 0)

    def say(self, text: str) -> None:
        """A line above the bar, for whoever watches; machines read it in the result."""
        if self._told:
            self._console.print(escape(text), soft_wrap=True)

    def _show_if_slow(self) -> None:
        if not self._live and time.perf_counter() - self._started > PATIENCE:
            self._progress.start()
            self._live = True

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._progress.stop()
