"""δ = c E[t/(t e(δ) - z)], e(δ) = E[g/(1 + gδ)]: the fixed point in the upper half-plane, by safeguarded Newton.

For z in the closed upper half-plane the right side maps the upper half-plane into itself, so it has at most one fixed
point there (Denjoy-Wolff): any root with Im δ > 0 is the right one, and only its existence near the axis is delicate.
"""

from __future__ import annotations

import numpy as np

from ._population import Complex, Mask, Population, Real

_CONVERGED = 1e-13


def upper_fixed_point(
    z: Complex, g: Population, t: Population, ratio: float, scale: float, guess: Complex | None = None
) -> tuple[Complex, Complex]:
    """(δ, e(δ)) at each z; `guess` (Im > 0) saves the continuation where Newton converges from it.

    Where no root exists above the axis (real z outside the support) the limit from above is returned to within the
    smallest height reached, about 1e-12 of `scale`.
    """
    delta = np.empty_like(z)
    todo: Mask = np.ones(z.shape, dtype=bool)
    if guess is not None:
        delta[:], done = _newton(z, guess.copy(), g, t, ratio)
        todo = ~done
    for factor in (0.1, 0.4, 0.8):
        if todo.any():
            delta[todo], done = _descend(z[todo], g, t, ratio, scale, factor)
            todo[np.flatnonzero(todo)[done]] = False
    return delta, g.response(delta)[0]


def _descend(
    z: Complex, g: Population, t: Population, ratio: float, scale: float, factor: float
) -> tuple[Complex, Mask]:
    """Follow the root from far above the axis down to z, shrinking the height by `factor` each time."""
    height = 2.0 * (scale + np.abs(z))
    far = z + 1j * height
    delta = np.asarray(-ratio * t.moment(1) / far, np.complex128)
    for _ in range(4):
        delta = _image(far, delta, g, t, ratio)
    floor = 1e-12 * scale
    while height.max() > floor:
        delta, _ = _newton(z + 1j * height, delta, g, t, ratio)
        height = height * factor
    last, done = _newton(z, delta, g, t, ratio)
    delta[done] = last[done]
    return delta, done


def _image(z: Complex, delta: Complex, g: Population, t: Population, ratio: float) -> Complex:
    return _step(z, g.response(delta), t, ratio)[0]


def _step(z: Complex, response: tuple[Complex, Complex], t: Population, ratio: float) -> tuple[Complex, Complex]:
    """Φ(δ) and Φ'(δ) for the map Φ(δ) = c E[t/(t e(δ) - z)]."""
    e, slope = response
    if t.is_dirac:
        resolvent = t.nodes[0] / (t.nodes[0] * e - z)
        return ratio * t.weights[0] * resolvent, -ratio * t.weights[0] * resolvent**2 * slope
    resolvent = t.nodes / (np.multiply.outer(e, t.nodes) - z[:, None])
    return ratio * (resolvent @ t.weights), -ratio * ((resolvent**2) @ t.weights) * slope


def _newton(
    z: Complex, delta: Complex, g: Population, t: Population, ratio: float, steps: int = 40
) -> tuple[Complex, Mask]:
    """Newton on δ - Φ(δ), each step cut so that Im δ never loses more than nine tenths; returns (δ, converged)."""
    done: Mask = np.zeros(z.shape, dtype=bool)
    active = np.arange(z.size)
    for _ in range(steps):
        here = delta[active]
        image, slope = _step(z[active], g.response(here), t, ratio)
        gap = image - here
        with np.errstate(divide="ignore", invalid="ignore"):
            move = gap / (1.0 - slope)
        move = np.where(np.isfinite(move), move, gap)
        sinking = here.imag + move.imag < 0.1 * here.imag
        # Φ keeps the upper half-plane, so its own step is the safe one where Newton would leave it.
        cut = np.where(sinking, 0.9 * here.imag / np.maximum(-move.imag, here.imag), 1.0)
        move = np.where(sinking & (cut < 0.05), gap, np.minimum(cut, 1.0) * move)
        delta[active] = here + move
        small = (np.abs(move) <= _CONVERGED * np.abs(here)) & ~sinking & (delta[active].imag > 0)
        done[active[small]] = True
        active = active[~small]
        if active.size == 0:
            break
    return delta, done


def cumulative(x: Real, delta: Complex, e: Complex, g: Population, t: Population, ratio: float) -> Real:
    """F(x) = -Im V/π, V = E log(t e - x) + (E log(1 + gδ) - e δ)/c: the log-determinant is stationary in (δ, e)."""
    inner = np.multiply.outer(e, t.nodes) - x[:, None]
    inner.imag = -np.abs(inner.imag)
    outer_zeros = np.where(x > 0, -np.pi, 0.0) * t.zero_mass
    turns = np.angle(inner) @ t.weights + outer_zeros + np.imag(g.log_response(delta) - e * delta) / ratio
    return np.asarray(-turns / np.pi)
