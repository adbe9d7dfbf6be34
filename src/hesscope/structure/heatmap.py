"""|H| as a picture of given size, streamed: no dense matrix and no dense image."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..arguments import need_count
from ..curvature import Problem
from ..curvature.gradient_mode import differentiable
from ..errors import refuse
from ..measure import Array
from ..operators import LinearOperator
from ..operators.given import MatrixName
from ..results.blocks import HeatMap
from .exact.tiles import Stream
from .source import source_of


@differentiable()
def heat_map(
    matrix_of: Problem | LinearOperator,
    pixels: int = 512,
    *,
    reduce: Literal["max", "mean"] = "max",
    matrix: MatrixName | None = None,
) -> HeatMap:
    """max or mean of |H| over each pixel's entries, in the order of the parameters; small problems get a pixel per entry.

    "max" keeps thin lines visible at any size; "mean" shows weight. Memory: one tile and the picture.
    """
    need_count("pixels", pixels, do="512 fills a screen.")
    if reduce not in ("max", "mean"):
        refuse("reduce must be 'max' or 'mean'", f"{reduce!r}", "Leave it at 'max'.")
    source = source_of(matrix_of, matrix)
    n = source.size
    side = min(pixels, n)
    stream = Stream(source)
    pixel = (stream.order * side // n).numpy()
    image = np.zeros((side, side))
    join = np.maximum if reduce == "max" else np.add
    for tile in stream:
        a, (rows, width) = tile.start, tile.values.shape
        by_row = _grouped(join, tile.values.abs().cpu().numpy(), pixel[a : a + rows], side)
        beyond = _grouped(join, by_row[:, rows:].T, pixel[a + rows : a + width], side)
        join(image, beyond, out=image)
        join(image, beyond.T, out=image)
        join(image, _grouped(join, by_row[:, :rows].T, pixel[a : a + rows], side), out=image)
    if reduce == "mean":
        share = np.bincount(pixel, minlength=side)
        image /= np.outer(share, share)
    tensors = [] if source.problem is None else list(source.problem.space.slices())
    bounds = [place.start * side / n for _, place in tensors]
    names = tuple(name for name, _ in tensors)
    return HeatMap(image, np.array(bounds), names, n, reduce, source.verified(), stream.how)


def _grouped(join: np.ufunc, values: NDArray[Any], groups: NDArray[np.int64], side: int) -> Array:
    """Rows joined by group number: shape `(side, columns)`, zero where a group is empty."""
    out = np.zeros((side, values.shape[1]))
    if len(groups):
        order = np.argsort(groups, kind="stable")
        sorted_groups = groups[order]
        starts = np.flatnonzero(np.r_[True, np.diff(sorted_groups) > 0])
        out[sorted_groups[starts]] = join.reduceat(values[order], starts, axis=0)
    return out
