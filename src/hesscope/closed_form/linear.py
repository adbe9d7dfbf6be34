"""Linear networks with one hidden layer: any input and output size, with or without a bias."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..errors import refuse
from ..measure import Array
from ._inputs import TwoLayer, finite, same_length
from .coupled import couple
from .products import WeightProduct
from .spectrum import ClosedFormSpectrum


def linear_network(w: ArrayLike, v: ArrayLike, x: ArrayLike, y: ArrayLike) -> ClosedFormSpectrum:
    """All eigenpairs of ∇²(1/2n) Σ_i |w v x_i − y_i|² over (v, w).

    Scalar input and output: w, v of shape (m,), x and y of shape (n,); then the spectrum is ±d (m − 1 times each),
    d = mean(x δ), and two outliers that sum to the trace. In general w is (K, m), v (m, D), x (n, D), y (n, K): the bulk
    is ± the singular values of mean(δ xᵀ), and K(3D + K − 2) outliers (for K <= D) come from a matrix of that size.
    Cost: O(m (D + K)² + n D K) beside it; width 10⁶ takes milliseconds.
    Reference: "Cracking the Hessian", Theorems 3.1-3.3 (scalar); docs/theory/closed_form.md.

    >>> s = linear_network(w=[1.0, 0.0, 2.0], v=[0.5, 1.0, 0.0], x=[1.0, -1.0], y=[1.0, 2.0])
    >>> s.eigenvalues.round(3).tolist(), s.trace
    ([-1.0, -1.0, -0.305, 1.0, 1.0, 6.555], 6.25)
    """
    net = TwoLayer.of(w, v, x, y)
    residual = net.x @ (net.outer @ net.inner.T).T - net.y
    product = WeightProduct("network", net.outer, net.inner, residual.T @ net.x / len(net.x), net.starts, net.strides)
    parts = couple([product], per_output(len(net.outer), net.x.T @ net.x / len(net.x)))
    return ClosedFormSpectrum("linear network", parts, net.parameter_order)


def linear_network_with_bias(
    w: ArrayLike, v: ArrayLike, b: ArrayLike, x: ArrayLike, y: ArrayLike, *, printed: bool = False
) -> ClosedFormSpectrum:
    """All eigenpairs of ∇²(1/2n) Σ_i (⟨w, v x_i + b⟩ − y_i)² over (w, v, b); all weights (m,), x and y (n,).

    No condition is needed: a bias is a second input that is always 1. Bulk: ±r (m − 2 each) with
    r² = mean(xδ)² + mean(δ)², and 0 (m − 1 times); five outliers. `printed=True` insists on the conditions of
    Theorem B.1, under which the outliers are one pair and one triple in closed form, and refuses everything else.
    For more inputs or outputs give `linear_network` a column of ones.
    """
    w_, v_, b_, x_, y_ = (finite(name, value, (1,)) for name, value in zip("wvbxy", (w, v, b, x, y), strict=True))
    width = same_length(w=w_.size, v=v_.size, b=b_.size)
    same_length(x=x_.size, y=y_.size)
    if printed:
        _insist_on_theorem_b1(v_, b_, x_, y_)
    inputs = np.stack([x_, np.ones_like(x_)], axis=1)
    inner = np.stack([v_, b_])
    residual = inputs @ (inner @ w_) - y_
    slope = (residual @ inputs / x_.size)[None]
    product = WeightProduct("network", w_[None], inner, slope, width * np.arange(3), np.ones(3, dtype=np.int64))
    parts = couple([product], inputs.T @ inputs / x_.size)
    shape = (width,)
    return ClosedFormSpectrum("linear network with bias", parts, (("w", shape), ("v", shape), ("b", shape)))


def per_output(outputs: int, covariance: Array) -> Array:
    """I_K ⊗ covariance: the curvature of the mean squared error in the entries of A."""
    return np.asarray(np.kron(np.eye(outputs), covariance))


def _insist_on_theorem_b1(v: Array, b: Array, x: Array, y: Array, tolerance: float = 1e-9) -> None:
    lengths, spread = float(v @ v + b @ b), float(np.sqrt(np.mean(y * y)))
    gaps = {
        "<v, b> = 0": (float(v @ b), lengths),
        "|v| = |b|": (float(v @ v - b @ b), lengths),
        "mean(x^2) = 1": (float(np.mean(x * x)) - 1.0, 1.0),
        "mean(x) = 0": (float(np.mean(x)), 1.0),
        "mean(y) = 0": (float(np.mean(y)), spread),
        "mean(y x) = 0": (float(np.mean(y * x)), spread),
    }
    broken = [f"{name} fails by {gap:.3g}" for name, (gap, scale) in gaps.items() if abs(gap) > tolerance * scale]
    if broken:
        refuse(
            "the printed Theorem B.1 needs <v, b> = 0, |v| = |b|, mean(x^2) = 1, mean(x) = mean(y) = mean(y x) = 0",
            "; ".join(broken),
            "Drop printed=True: the general form needs no condition.",
        )
