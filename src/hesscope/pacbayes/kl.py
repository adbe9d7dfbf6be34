"""The Kullback-Leibler divergence of two coins, and its inverse: kl(q ‖ p) = q log(q/p) + (1-q) log((1-q)/(1-p))."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import real_array
from ..errors import refuse
from ..measure import Array

_SERIES = tuple((-1) ** k / k for k in range(2, 20))


def binary_kl(q: npt.ArrayLike, p: npt.ArrayLike) -> Any:
    """kl(q ‖ p) = q log(q/p) + (1-q) log((1-q)/(1-p)), in nats, to full relative precision also where p ≈ q.

    Broadcasts; infinite where p is 0 or 1 and q is not.

    >>> round(binary_kl(0.0, 0.5), 6), binary_kl(0.3, 0.3)
    (0.693147, 0.0)
    """
    q, p = _together(q=_probability(q, "q"), p=_probability(p, "p"))
    # Far from q the difference p - q forgets a small p or 1 - p; the textbook form does not, and cancels little there.
    far = (p < 0.5 * q) | (1 - p < 0.5 * (1 - q))
    return _plain(np.where(far, _textbook(q, p), _divergence(q, p - q)))


def binary_kl_inverse(q: npt.ArrayLike, c: npt.ArrayLike) -> Any:
    """max { p : kl(q ‖ p) ≤ c }: how large a true rate can be when the observed one is q.

    Newton's method from above, where kl is convex, so every iterate is an upper bound. Exact at q = 0 (1 - e^-c),
    q = 1 and c = 0; for tiny c the difference p - q keeps its relative precision.

    >>> float(round(binary_kl_inverse(0.0, 0.1), 6)), float(binary_kl_inverse(1.0, 0.1))
    (0.095163, 1.0)
    """
    q, c = _together(q=_probability(q, "q"), c=real_array("c", c))
    if not np.all(c >= 0):
        refuse("c must be at least 0", f"{float(np.min(c))}", "It is a divergence.")
    room = 1.0 - q
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Two bounds from above: Pinsker's inequality, and what is left without q log(q/p) ≥ q log q.
        entropy = np.where(q > 0, -q * np.log(np.where(q > 0, q, 1.0)), 0.0)
        d = np.minimum(np.sqrt(c / 2), -room * np.expm1(-(c + entropy) / room))
        d = np.where(q > 0, d, -np.expm1(-c))
        d = np.where(room > 0, np.minimum(d, room), 0.0)
        for _ in range(100):
            inside = (d > 0) & (d < room) & (q > 0)
            slope = d / np.where(inside, (q + d) * (room - d), 1.0)
            step = np.where(inside, (_divergence(q, d) - c) / np.where(inside, slope, 1.0), 0.0)
            d = np.where(step > 0, np.maximum(d - step, 0.0), d)
            if not np.any(step > 1e-15 * d):
                break
    p = np.where(np.isinf(c), 1.0, np.where(c == 0, q, np.minimum(q + d, 1.0)))
    return _plain(p)


def binary_kl_inverse_slopes(q: float, c: float) -> tuple[float, float, float]:
    """p = kl⁻¹(q, c) with ∂p/∂q and ∂p/∂c, for 0 < q < 1 and c > 0 (implicit function theorem)."""
    p = min(float(binary_kl_inverse(q, c)), 1 - 1e-9)  # where the bound says nothing, the slopes still point down
    slope = (p - q) / (p * (1 - p))
    return p, float(np.log(p * (1 - q) / (q * (1 - p)))) / slope, 1 / slope


def excess(x: Any) -> Any:
    """x - log(1 + x) ≥ 0, to full relative precision (by its series where |x| is small)."""
    x = np.asarray(x, dtype=np.float64)
    small = np.abs(x) < 0.1
    near = np.where(small, x, 0.0)
    series = np.zeros_like(near)
    for coefficient in reversed(_SERIES):
        series = (series + coefficient) * near
    with np.errstate(divide="ignore"):
        return np.where(small, series * near, x - np.log1p(np.where(small, 0.0, x)))


def _textbook(q: Array, p: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(q > 0, q * np.log(q / p), 0.0)
        second = np.where(q < 1, (1 - q) * np.log((1 - q) / (1 - p)), 0.0)
    return np.asarray(first + second)


def _divergence(q: Array, d: Array) -> Array:
    """kl(q ‖ q + d) as a sum of two terms that are never negative: the parts linear in d cancel on paper."""
    room = 1.0 - q
    up, down = np.where(q > 0, q, 1.0), np.where(room > 0, room, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        first = np.where(q > 0, q * excess(np.maximum(d / up, -1.0)), d)
        second = np.where(room > 0, room * excess(np.maximum(-d / down, -1.0)), -d)
    return np.asarray(first + second)


def _probability(value: npt.ArrayLike, name: str) -> Array:
    found = real_array(f"{name} must be a probability or an error rate in [0, 1] and", value)
    if not np.all((found >= 0) & (found <= 1)):
        worst = found[~((found >= 0) & (found <= 1))].flat[0]
        refuse(f"{name} must be a probability or an error rate in [0, 1]", f"{worst}", "Divide counts by their total.")
    return found


def _together(**arrays: Array) -> tuple[Array, ...]:
    """The arrays in their common shape."""
    try:
        return np.broadcast_arrays(*arrays.values())
    except ValueError:
        shapes = " and ".join(str(array.shape) for array in arrays.values())
        refuse(f"{' and '.join(arrays)} must have one shape, or be single numbers", shapes, "Check their lengths.")


def _plain(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else value
