"""Pictures of the loss around the parameters: lines and planes, each beside its quadratic model."""

from __future__ import annotations

import numpy as np

from ..measure import Array
from ..results.landscape import Landscape, LossLine, LossPlane
from .picture import Axis, Curve, Panel, Picture, Surface

UNITS = {
    "step": "t, in steps of the optimiser",
    "checkpoint": "t, from here (0) to there (1)",
    "random": "t, in norms of the filters",
}
DENSE = 200  # points of a parabola


def landscape_picture(found: Landscape) -> Picture:
    """One view for each line, then the plane and its model."""
    panels = [line_panel(line, f"landscape-{number}") for number, line in enumerate(found.lines, 1)]
    if found.plane is not None:
        panels += plane_panels(found.plane)
    return Picture("landscape", "Landscape", tuple(panels), 430)


def line_panel(line: LossLine, file: str = "landscape-1") -> Panel:
    """The loss, its quadratic model, and the places where the model breaks."""
    t = np.linspace(line.places[0], line.places[-1], DENSE)
    low, high = _range(line)
    model = line.model(t)
    marks = [
        Curve("loss", line.places, line.losses, "measured", marker="dot", hover="t = {x:.4g}\nloss {y:.5g}"),
        Curve(
            "quadratic model at t = 0",
            t,
            np.where((model >= low) & (model <= high), model, np.nan),
            "theory",
            "dashed",
            hover="t = {x:.4g}\nmodel {y:.5g}",
        ),
    ]
    sides = ((-line.backward.distance, line.backward), (line.forward.distance, line.forward))
    shown = [(place, side) for place, side in sides if line.places[0] <= place <= line.places[-1]]
    if shown:
        places = np.array([place for place, _ in shown])
        texts = tuple(f"model off by {line.share:.0%} of its terms at |t| = {side}" for _, side in shown)
        heights = np.interp(places, line.places, line.losses)
        name = f"model breaks ({line.share:.0%} of its terms)"
        marks.append(Curve(name, places, heights, "highlight", "none", "diamond", "{text}", texts=texts))
    x = Axis(UNITS.get(line.along, "t, a distance in parameters"))
    return Panel(line.name, file, tuple(marks), x, Axis(f"loss along {_short(line.name)}", low=low, high=high))


def plane_panels(plane: LossPlane) -> list[Panel]:
    """The loss over a plane and its quadratic model, in the same colours."""
    x, y = (Axis(_short(name)) for name in plane.names)
    finite = plane.losses[np.isfinite(plane.losses)]
    low, high = float(finite.min()), float(np.quantile(finite, 0.98))
    high = high if high > low else low + 1.0
    here = Curve(
        "θ", np.zeros(1), np.zeros(1), "highlight", "none", "diamond", "here: loss {value:.5g}", _one(plane.loss)
    )
    return [
        Panel(label, "landscape-plane", (Surface(label, plane.x, plane.y, z, low, high), here), x, y)
        for label, z in (("loss", plane.losses), ("quadratic model", plane.model()))
    ]


def _range(line: LossLine) -> tuple[float, float]:
    """What the loss spans, with a margin: a parabola that leaves it is cut off."""
    finite = line.losses[np.isfinite(line.losses)]
    low, high = float(finite.min()), float(finite.max())
    margin = 0.15 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def _short(name: str) -> str:
    return name.partition(" (")[0]


def _one(value: float) -> Array:
    return np.array([value])
