"""ReLU networks with one hidden layer, through the cells of equal activation pattern."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..measure import Array
from ._inputs import TwoLayer
from .coupled import couple
from .products import WeightProduct
from .spectrum import ClosedFormSpectrum


def relu_network(w: ArrayLike, v: ArrayLike, x: ArrayLike, y: ArrayLike) -> ClosedFormSpectrum:
    """All eigenpairs of ∇²(1/2n) Σ_i |w (v x_i)₊ − y_i|² over (v, w), with relu'(0) = 0.

    Shapes as in `linear_network`. Hidden units that are active on the same data form a cell, and a cell is a linear
    network. With scalar inputs there are two cells that do not see each other, so the spectrum is the union of theirs;
    in general, cells that share data are coupled and the reduced problem grows with the number of cells, not with the
    width. It pays when many units share a pattern: scalar or low-dimensional inputs, few data, or great width.
    Cost: O(n m D) for the patterns, then O(c³ (D + K)⁶) for c coupled cells.
    Reference: "Cracking the Hessian", Theorem 3.4 (scalar inputs); docs/theory/closed_form.md.
    """
    net = TwoLayer.of(w, v, x, y)
    count, inputs = net.x.shape
    before = net.x @ net.inner
    residual = np.maximum(before, 0.0) @ net.outer.T - net.y
    patterns, cell_of = np.unique(before > 0, axis=1, return_inverse=True)
    seen = patterns.T[:, :, None] * net.x  # (cells, n, D): the inputs as each cell sees them
    products = []
    for c, active in enumerate(patterns.T):
        units = np.flatnonzero(cell_of.reshape(-1) == c)
        slope = residual.T @ seen[c] / count
        name = _name(active, net.x)
        products.append(
            WeightProduct(name, net.outer[:, units], net.inner[:, units], slope, net.starts, net.strides, units)
        )
    cells, outputs = patterns.shape[1], len(net.outer)
    flat = seen.swapaxes(0, 1).reshape(count, cells * inputs)
    moments = (flat.T @ flat / count).reshape(cells, 1, inputs, cells, 1, inputs)
    size = cells * outputs * inputs
    curvature = (moments * np.eye(outputs)[:, None, None, :, None]).reshape(size, size)
    return ClosedFormSpectrum("ReLU network", couple(products, curvature), net.parameter_order)


def _name(active: NDArray[np.bool_], x: Array) -> str:
    if not active.any():
        return "idle cell"
    if x.shape[1] == 1:
        return "+ cell" if x[active, 0][0] > 0 else "- cell"
    return f"cell active on {int(active.sum())} of {active.size} inputs"
