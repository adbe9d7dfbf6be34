"""`hesscope watch`: a run of training while it is under way, in the terminal."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from ...errors import refuse
from ..output import CommandOutput
from ..progress import ProgressBar

if TYPE_CHECKING:
    from ...results.monitoring import MonitoredRun

SHOWN = (
    ("loss", "loss", None),
    ("sharpness", "sharpness", "sharpness_error"),
    ("preconditioned / edge", "edge_ratio", None),
    ("trace", "trace", "trace_error"),
    ("Gauss-Newton share", "gauss_newton_share", None),
    ("batch sharpness", "batch_sharpness", "batch_sharpness_error"),
    ("‖H‖² within layers", "diagonal_share", "diagonal_share_error"),
)
BARS = "▁▂▃▄▅▆▇█"
WIDE = 100.0  # the range from which a curve is drawn in logarithms


@dataclass(frozen=True)
class Watch:
    """Draw a run that a Monitor writes, again and again until Ctrl-C."""

    file: tyro.conf.Positional[Path]
    """The run (.jsonl)."""
    once: bool = False
    """Draw it once and stop."""
    seconds: float = 2.0
    """Between two looks at the file."""
    json: bool = False
    """Print the last reading as JSON, once."""

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...results.monitoring import load_run

        if not 0 < self.seconds < float("inf"):
            refuse("--seconds must be above 0 and finite", f"{self.seconds}", "Leave it out.")
        run = load_run(self.file)
        if not (self.once or self.json):
            run = self._live(run)
        last = run.readings[-1] if run.readings else None
        return CommandOutput(screen(run), {"settings": run.settings, "readings": len(run.readings), "last": last})

    def _live(self, run: MonitoredRun) -> MonitoredRun:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        from ...results.monitoring import load_run

        console = Console()
        with Live(Text("\n".join(screen(run))), console=console, transient=True, auto_refresh=False) as live:
            try:
                while True:
                    live.update(Text("\n".join(screen(run, console.width))), refresh=True)
                    time.sleep(self.seconds)
                    run = load_run(self.file)
            except KeyboardInterrupt:
                return run


def screen(run: MonitoredRun, width: int = 100) -> list[str]:
    """A run as lines of text: a curve, the last value and its error for each number."""
    import numpy as np

    head = f"{run.name}: {run.settings.get('model', '?')}, {run.settings.get('parameters', 0):,} parameters"
    if not run.readings:
        return [head, "no reading yet"]
    last, room = run.readings[-1], max(10, min(60, width - 54))
    share = "" if last.share is None else f", {last.share:.2%} of the training time"
    lines = [f"{head}, step {last.step:,}, {len(run.readings)} readings{share}"]
    for title, name, error in SHOWN:
        values = run.column(name)
        read = np.flatnonzero(np.isfinite(values))
        if read.size:
            off = float("nan") if error is None else run.column(error)[read[-1]]
            more = f" ± {off:.2g}" if np.isfinite(off) else ""
            shown = values[read]
            if shown.min() > 0 and shown.max() > WIDE * shown.min():  # one early spike would flatten all the rest
                title, shown = f"{title}, log", np.log(shown)
            lines.append(f"{title:<26} {sparkline(shown, room):<{room}} {values[read[-1]]:.4g}{more}")
    if last.binding:
        lines.append("binding now: " + ", ".join(f"{layer} {share:.0%}" for layer, share in last.binding.items()))
    ratio = last.edge_ratio
    if ratio is not None and last.rate is not None:
        where = (
            "above the edge: the frozen step is unstable"
            if ratio > 1
            else f"a factor of {1 / max(ratio, 1e-12):,.3g} below"
        )
        lines.append(f"{last.optimizer} at rate {last.rate:.3g}: {ratio:.2g} of its edge ({where})")
        lines.append("For mini-batch training the edge is a ceiling, not advice.")
    if last.converged is False:
        lines.append("the last reading did NOT converge to its tolerance; its errors say how far off it may be")
    lines += [f"note: {note}" for note in last.notes]
    if run.failed:
        lines.append(f"{len(run.failed)} readings failed; last: {run.failed[-1].error}")
    return lines


def sparkline(values: object, width: int) -> str:
    """A curve in one line of text, the latest `width` parts of it as means."""
    import numpy as np

    series = np.asarray(values, dtype=np.float64)
    if series.size > width:
        series = np.array([part.mean() for part in np.array_split(series, width)])
    low, high = float(series.min()), float(series.max())
    level = np.zeros(series.size) if high == low else (series - low) / (high - low)
    return "".join(BARS[round(x * (len(BARS) - 1))] for x in level)
