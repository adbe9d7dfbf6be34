"""What attention does to a row of scores, with the two derivatives that a Hessian needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..measure import Array


@dataclass(frozen=True)
class RowActivation:
    """a: R^L -> R^L on each row z of scores (last axis), with its first and second derivative.

    value(z) = a(z); pullback(z, c) = ∇⟨c, a(z)⟩; bend(z, c, t) = ∇²⟨c, a(z)⟩ t. All broadcast over leading axes.
    Any smooth row-wise activation will do; write these three functions for yours.
    """

    name: str
    value: Callable[[Array], Array]
    pullback: Callable[[Array, Array], Array]
    bend: Callable[[Array, Array, Array], Array]


def elementwise(
    name: str, value: Callable[[Array], Array], slope: Callable[[Array], Array], second: Callable[[Array], Array]
) -> RowActivation:
    """a(z)_j = φ(z_j) / L, from φ, φ' and φ''."""
    return RowActivation(
        name,
        lambda z: value(z) / z.shape[-1],
        lambda z, c: c * slope(z) / z.shape[-1],
        lambda z, c, t: c * second(z) * t / z.shape[-1],
    )


def _softmax(z: Array) -> Array:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _softmax_pullback(z: Array, c: Array) -> Array:
    a = _softmax(z)
    return np.asarray(a * (c - np.sum(a * c, axis=-1, keepdims=True)))


def _softmax_bend(z: Array, c: Array, t: Array) -> Array:
    a, g = _softmax(z), _softmax_pullback(z, c)
    shared = a * np.sum(g * t, axis=-1, keepdims=True) + g * np.sum(a * t, axis=-1, keepdims=True)
    return np.asarray(g * t - shared)


SOFTMAX = RowActivation("softmax", _softmax, _softmax_pullback, _softmax_bend)
LINEAR = elementwise("linear", lambda z: z, np.ones_like, np.zeros_like)
