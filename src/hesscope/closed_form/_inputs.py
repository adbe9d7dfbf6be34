"""Checks that every closed form makes on its arrays: shapes that match, finite numbers, float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import real_array
from ..errors import refuse
from ..measure import Array
from .products import Places


def finite(name: str, value: ArrayLike, dims: tuple[int, ...]) -> Array:
    """`value` as float64, with one of the allowed numbers of dimensions and only finite entries."""
    array = real_array(name, value)
    if array.ndim not in dims or array.size == 0:
        wanted = " or ".join(str(d) for d in dims)
        refuse(f"{name} must be a non-empty array of dimension {wanted}", f"shape {array.shape}", "Check its shape.")
    if not np.all(np.isfinite(array)):
        refuse(f"{name} must hold finite numbers", "NaN or infinity", "Remove or repair these entries.")
    return array


def same_length(**sizes: int) -> int:
    """The size that all named arrays share along one axis."""
    if len(set(sizes.values())) != 1:
        shown = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        refuse(f"{' and '.join(sizes)} must have the same length", shown, "Check which axis is which.")
    return next(iter(sizes.values()))


@dataclass(frozen=True, eq=False)
class TwoLayer:
    """The arrays of f(x) = w φ(v x) in one shape each, and where the flat order (v, w) puts their numbers."""

    outer: Array  # (K, m)
    inner: Array  # (D, m)
    x: Array  # (n, D)
    y: Array  # (n, K)
    starts: Places  # (K + D,), of the rows of (outer; inner)
    strides: Places  # (K + D,)
    parameter_order: tuple[tuple[str, tuple[int, ...]], ...]

    @staticmethod
    def of(w: ArrayLike, v: ArrayLike, x: ArrayLike, y: ArrayLike) -> TwoLayer:
        """w: (m,) or (K, m); v: (m,) or (m, D); x: (n,) or (n, D); y: (n,) or (n, K)."""
        w_, v_ = finite("w", w, (1, 2)), finite("v", v, (1, 2))
        x_, y_ = finite("x", x, (1, 2)), finite("y", y, (1, 2))
        outer, inner = np.atleast_2d(w_), (v_ if v_.ndim == 2 else v_[:, None]).T
        inputs, outputs = (a if a.ndim == 2 else a[:, None] for a in (x_, y_))
        width = same_length(w=outer.shape[1], v=inner.shape[1])
        same_length(x=inputs.shape[0], y=outputs.shape[0])
        same_length(v_inputs=inner.shape[0], x_features=inputs.shape[1])
        same_length(w_outputs=outer.shape[0], y_columns=outputs.shape[1])
        features = len(inner)
        starts = np.concatenate([v_.size + width * np.arange(len(outer)), np.arange(features)])
        strides = np.repeat([1, features], [len(outer), features])
        order = (("v", v_.shape), ("w", w_.shape))
        return TwoLayer(outer, inner, inputs, outputs, starts, strides, order)
