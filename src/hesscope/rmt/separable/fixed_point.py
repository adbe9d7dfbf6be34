"""δ = c E[t/(t e(δ) - z)], e(δ) = E[g/(1 + gδ)]: the fixed point in the upper half-plane, by safeguarded Newton.

For z in the closed upper half-plane the right side maps the upper half-plane into itself, so it has at most one fixed
point there (Denjoy-Wolff): any root with Im δ > 0 is the right one. It attracts; real roots beside it repel, and rounding
may lift one of those above the axis, so a root counts only where |Φ'| <= 1.
"""

from __future__ import annotations

import numpy as np

from .population import Complex, Mask, Population, Real

_CONVERGED = 1e-13
_STRIDE = 8
_ATTRACTS = 1.0 + 1e-6  # |Φ'| at a root: 1 at an edge, larger by a finite amount at a real root inside the support


def upper_fixed_point(z: Complex, g: Population, t: Population, ratio: float, scale: float) -> tuple[Complex, Complex]:
    """(δ, e(δ)) at each z in the closed upper half-plane.

    Where no root exists above the axis (real z outside the support) the limit from above is returned to within the
    smallest height reached, about 1e-12 of `scale`.
    """
    order = np.lexsort((z.imag, z.real))
    delta = np.empty_like(z)
    if z.size <= 4 * _STRIDE:
        delta[order] = _cold(z[order], g, t, ratio, scale)
    else:
        sparse = order[np.unique(np.append(np.arange(0, z.size, _STRIDE), z.size - 1))]
        delta[sparse] = _cold(z[sparse], g, t, ratio, scale)
        rest = np.setdiff1d(order, sparse)
        # Between solved neighbours the interpolated root is a start from which Newton nearly always succeeds.
        guess = np.interp(z[rest].real, z[sparse].real, delta[sparse])
        fresh, done = _newton(z[rest], np.asarray(guess, np.complex128), g, t, ratio, steps=12)
        delta[rest] = fresh
        if not done.all():
            delta[rest[~done]] = _cold(z[rest[~done]], g, t, ratio, scale)
    return delta, g.response(delta)[0]


def _cold(z: Complex, g: Population, t: Population, ratio: float, scale: float) -> Complex:
    """Come down from far above the axis, in ever smaller steps for the points that need them."""
    delta = np.empty_like(z)
    todo = np.arange(z.size)
    for factor, lowest in ((0.25, 0.1), (0.1, 1e-12), (0.4, 1e-12), (0.8, 1e-12)):
        if todo.size:
            delta[todo], done = _descend(z[todo], g, t, ratio, scale, factor, lowest)
            todo = todo[~done]
    return delta


def _descend(
    z: Complex, g: Population, t: Population, ratio: float, scale: float, factor: float, lowest: float
) -> tuple[Complex, Mask]:
    """Follow the root from far above down to the height `lowest` x scale, then try z itself."""
    height = 2.0 * (scale + np.abs(z))
    far = z + 1j * height
    delta = np.asarray(-ratio * t.moment(1) / far, np.complex128)
    for _ in range(3):
        delta = _step(far, g.response(delta), t, ratio)[0]
    close = lowest < 1e-3
    held: Mask = np.zeros(z.shape, dtype=bool)
    while height.max() > lowest * scale:
        delta, held = _newton(z + 1j * height, delta, g, t, ratio, steps=40 if close else 2)
        height = height * factor
    last, done = _newton(z, delta.copy(), g, t, ratio, steps=40 if close else 15)
    delta[done] = last[done]
    # So near the axis at this height, the root has no density that double precision could tell from zero.
    return delta, done | (held & (delta.imag < 1e-8 * np.abs(delta))) if close else done


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
    """Newton for ζ = -1/δ, each step cut so that Im ζ never loses more than nine tenths; returns (δ, converged).

    In ζ rather than δ, because ζ is nearly linear in z both far away and next to an atom at zero.
    """
    zeta = -1.0 / delta
    done: Mask = np.zeros(z.shape, dtype=bool)
    active = np.arange(z.size)
    for _ in range(steps):
        here = zeta[active]
        at = -1.0 / here
        image, slope = _step(z[active], g.response(at), t, ratio)
        gap = -1.0 / image - here
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            move = gap / (1.0 - slope * (at / image) ** 2)
            move = np.where(np.isfinite(move), move, gap)
            sinking = here.imag + move.imag < 0.1 * here.imag
            # The map keeps the upper half-plane, so its own step is the safe one where Newton would leave it.
            cut = np.where(sinking, 0.9 * here.imag / np.maximum(-move.imag, 1e-300), 1.0)
        move = np.where(sinking & (cut < 0.05), gap, np.minimum(cut, 1.0) * move)
        zeta[active] = here + move
        # At an edge the root is nearly double: there a residual at rounding level is all one can ask for.
        settled = (np.abs(move) <= _CONVERGED * np.abs(here)) | (np.abs(gap) <= 4e-15 * np.abs(here))
        small = settled & ~sinking & (zeta[active].imag > 0) & (np.abs(slope) <= _ATTRACTS)
        done[active[small]] = True
        active = active[~small]
        if active.size == 0:
            break
    return -1.0 / zeta, done


def cumulative(z: Complex, delta: Complex, e: Complex, g: Population, t: Population, ratio: float) -> Real:
    """F = -Im V/π, V = E log(t e - z) + (E log(1 + gδ) - e δ)/c: the log-determinant is stationary in (δ, e).

    On the real axis this is the cdf; at height η above it, the cdf convolved with a Cauchy law of width η.
    """
    turns = _angle_below(np.multiply.outer(e, t.nodes) - z[:, None]) @ t.weights + t.zero_mass * _angle_below(-z)
    return np.asarray(-(turns + np.imag(g.log_response(delta) - e * delta) / ratio) / np.pi)


def _angle_below(w: Complex) -> Real:
    """arg w in [-π, 0] for w in the closed lower half-plane, where a rounded +0 would jump by 2π."""
    return np.asarray(np.arctan2(-np.abs(w.imag), w.real))
