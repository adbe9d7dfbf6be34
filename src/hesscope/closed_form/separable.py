"""Networks made of one scalar linear network for each input or for each output."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..measure import Array
from ._inputs import finite, same_length
from .coupled import couple
from .products import WeightProduct
from .spectrum import ClosedFormSpectrum


def separable_inputs(W: ArrayLike, V: ArrayLike, X: ArrayLike, y: ArrayLike) -> ClosedFormSpectrum:
    """All eigenpairs of ∇²(1/2n) Σ_i (Σ_d ⟨w_d, v_d⟩ x_id − y_i)²; W, V (D, m), X (n, D), y (n,).

    Order (v_1, w_1, v_2, w_2, ...). Uncorrelated inputs give the union of D scalar networks (Corollary B.1); correlated
    ones couple only the 2D outliers, which is solved too: a problem of size 2D.
    """
    outer, inner = finite("W", W, (2,)), finite("V", V, (2,))
    x, target = finite("X", X, (2,)), finite("y", y, (1,))
    same_length(X=x.shape[0], y=target.size)
    same_length(W=outer.shape[0], V=inner.shape[0], X_columns=x.shape[1])
    residual = x @ _heads(outer, inner) - target
    return _spectrum("separable inputs", "input", outer, inner, residual @ x / len(x), x.T @ x / len(x))


def separable_outputs(W: ArrayLike, V: ArrayLike, x: ArrayLike, Y: ArrayLike) -> ClosedFormSpectrum:
    """All eigenpairs of ∇²(1/2n) Σ_i Σ_k (⟨w_k, v_k⟩ x_i − y_ik)²; W, V (K, m), x (n,), Y (n, K).

    Order (v_1, w_1, v_2, w_2, ...). The heads never couple: the union of K scalar networks (Corollaries B.2, B.3).
    """
    outer, inner = finite("W", W, (2,)), finite("V", V, (2,))
    inputs, targets = finite("x", x, (1,)), finite("Y", Y, (2,))
    same_length(x=inputs.size, Y=targets.shape[0])
    same_length(W=outer.shape[0], V=inner.shape[0], Y_columns=targets.shape[1])
    residual = np.outer(inputs, _heads(outer, inner)) - targets
    curvature = np.eye(len(outer)) * np.mean(inputs**2)
    return _spectrum("separable outputs", "output", outer, inner, inputs @ residual / inputs.size, curvature)


def _heads(outer: Array, inner: Array) -> Array:
    same_length(W_width=outer.shape[1], V_width=inner.shape[1])
    return np.asarray(np.einsum("hm,hm->h", outer, inner))


def _spectrum(model: str, kind: str, outer: Array, inner: Array, slopes: Array, curvature: Array) -> ClosedFormSpectrum:
    heads, width = outer.shape
    once = np.ones(2, dtype=np.int64)
    products = [
        WeightProduct(
            f"{kind} {h}",
            outer[h : h + 1],
            inner[h : h + 1],
            slopes[h].reshape(1, 1),
            width * np.array([2 * h + 1, 2 * h]),
            once,
        )
        for h in range(heads)
    ]
    order = tuple((f"{letter}[{h}]", (width,)) for h in range(heads) for letter in "vw")
    return ClosedFormSpectrum(model, couple(products, curvature), order)
