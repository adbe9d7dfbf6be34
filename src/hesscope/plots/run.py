"""Pictures of a monitored run: loss and curvature along the steps, and where the curvature lies."""

from __future__ import annotations

import numpy as np

from ..measure import Array
from ..results.monitoring import MonitoredRun
from .picture import Axis, Curve, Panel, Picture

_STEP = Axis("training step")
_LAYERS = 5


def run_picture(run: MonitoredRun) -> Picture:
    """One panel per number that was read; readings that did not converge are open diamonds."""
    found = [
        _numbers(run, "Loss", "run", "loss", "loss on the held-out batch"),
        _numbers(run, "Sharpness", "run", "sharpness", "sharpness λ_max", "sharpness_error"),
        _edge(run),
        _numbers(run, "Trace", "run", "trace", "trace of H", "trace_error"),
        _binding(run),
        _numbers(run, "Gauss-Newton share", "run-structure", "gauss_newton_share", "share of G in λ_max"),
        _numbers(
            run, "Batch sharpness", "run-structure", "batch_sharpness", "batch sharpness", "batch_sharpness_error"
        ),
        _numbers(
            run, "Block-diagonality", "run-structure", "diagonal_share", "‖H‖² within layers", "diagonal_share_error"
        ),
    ]
    return Picture("run", f"Along the run: {run.name}", tuple(panel for panel in found if panel is not None), 400)


def _numbers(run: MonitoredRun, label: str, file: str, name: str, title: str, error: str | None = None) -> Panel | None:
    values = run.column(name)
    if not np.isfinite(values).any():
        return None
    marks = list(_marks(run, title, values, None if error is None else run.column(error)))
    return Panel(label, file, tuple(marks), _STEP, Axis(title, low=min(0.0, float(np.nanmin(values)))))


def _edge(run: MonitoredRun) -> Panel | None:
    """Preconditioned sharpness over the edge of the optimiser; above 1 the frozen step is unstable."""
    ratio = run.column("edge_ratio")
    if not np.isfinite(ratio).any():
        return None
    name = next((r.optimizer for r in reversed(run.readings) if r.optimizer), "the optimiser")
    off = run.column("preconditioned_error") / run.column("edge")
    marks = list(_marks(run, f"as {name} sees it", ratio, off))
    ends = np.array([run.steps.min(), run.steps.max()])
    marks.append(Curve("edge", ends, np.ones(2), "theory", "dashed", hover="edge of stability"))
    high = float(np.nanmax(ratio))
    scale = high > 30 * max(float(np.nanmedian(ratio)), 1e-12) and float(np.nanmin(ratio)) > 0
    axis = Axis("preconditioned sharpness / edge", "log") if scale else Axis("preconditioned sharpness / edge", low=0.0)
    return Panel("Against the edge", "run", tuple(marks), _STEP, axis)


def _marks(run: MonitoredRun, title: str, values: Array, errors: Array | None) -> list[Curve]:
    read = np.isfinite(values)
    steps, kept = run.steps[read], values[read]
    off = None if errors is None else errors[read]
    texts = tuple("" if off is None or not np.isfinite(off[i]) else f" ± {off[i]:.2g}" for i in range(kept.size))
    # Of hundreds of readings the line alone is seen.
    marker = "dot" if kept.size <= 60 else "none"
    found = [Curve(title, steps, kept, "measured", marker=marker, hover="step {x}: {y:.4g}{text}", texts=texts)]  # type: ignore[arg-type]
    late = np.array([reading.converged is False for reading in run.readings])[read]
    if errors is not None and late.any() and "trace" not in title and "‖H‖" not in title and "batch" not in title:
        found.append(
            Curve("not converged", steps[late], kept[late], "highlight", "none", "open diamond", "step {x}: {y:.4g}")
        )
    return found


def _binding(run: MonitoredRun) -> Panel | None:
    """The layers that held most of the binding direction, over the run."""
    total: dict[str, float] = {}
    for reading in run.readings:
        for layer, share in reading.binding.items():
            total[layer] = total.get(layer, 0.0) + share
    if not total:
        return None
    marks = []
    for number, layer in enumerate(sorted(total, key=lambda name: -total[name])[:_LAYERS]):
        shares = np.array([reading.binding.get(layer, np.nan) for reading in run.readings])
        read = np.isfinite(shares)
        marker = "dot" if read.sum() <= 60 else "none"
        marks.append(
            Curve(layer, run.steps[read], shares[read], f"cycle{number}", marker=marker, hover="step {x}: {y:.1%}")  # type: ignore[arg-type]
        )
    axis = Axis("share of the binding direction", low=0.0, high=1.02, percent=True)
    return Panel("Layers that bind", "run-structure", tuple(marks), _STEP, axis)
