"""Numbers along training."""

from __future__ import annotations

from typing import Any

import numpy as np

from .style import CYCLE, new_figure


def course_figure(course: Any) -> Any:
    """Loss, sharpness, trace and the share of ‖H‖² between layers over the checkpoints."""
    panels = [("loss", course.loss), ("sharpness λ_max", course.sharpness), ("trace", course.trace)]
    if course.snapshots:
        panels.append(("share of ‖H‖² between layers", 1 - course.diagonal_share))
    figure, axes = new_figure(1, len(panels), width=3.4, height=3.0)
    places = np.arange(len(course.labels))
    for axis, (name, values), ink in zip(np.atleast_1d(axes), panels, CYCLE, strict=False):
        axis.plot(places, values, "o-", color=ink)
        axis.set_xticks(places, course.labels)
        axis.set_xlabel("training step")
        axis.set_title(name, fontsize=10)
        axis.set_ylim(bottom=min(0.0, float(np.nanmin(values))))
    return figure
