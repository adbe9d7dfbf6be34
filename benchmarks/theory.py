"""Seconds of the theory, which has no peer: exact spectra of wide networks and limits of block norms."""

from __future__ import annotations

from hesscope import closed_form
from hesscope.rmt import block_limits
from hesscope.rng import Rng

from .timing import Row, interleaved


def rows() -> list[Row]:
    """Two million eigenvalues in closed form; the limits of a hundred thousand classes."""
    draw = Rng(0).numpy()
    w, v, x, y = (draw.normal(size=size) for size in (10**6, 10**6, 100, 100))
    seconds = interleaved(
        {
            "all eigenvalues of a linear network of width 10^6": lambda: (
                closed_form.linear_network(w, v, x, y).eigenvalues
            ),
            "block limits at 10^5 classes and three hidden units": _limits,
        },
        repeats=3,
    )
    targets = (0.05, 20.0)
    return [
        Row(work, f"{value:.2g} s", "none", value, f"<= {target:g} s", value <= target)
        for (work, value), target in zip(seconds.items(), targets, strict=True)
    ]


def _limits() -> None:
    block_limits.hidden_cross_entropy(1.0, 10**5, 3)
    block_limits.output_cross_entropy(10**5, 3)
