"""Nodes for E f(g, z), z Gaussian: trapezoidal rules on contours pushed to where Im g < 0.

The trapezoidal rule converges geometrically for analytic integrands against a Gaussian, its step can follow narrow
features (Gauss-Hermite nodes cannot), and halving it gives an error estimate. Deforming the contour keeps 1/(g - ζ)
smooth for every ζ in the closed upper half-plane, where real nodes would put poles on the path.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..separable.gaussian_grid import REACH, Values, gaussian, grid, line
from ..separable.population import Real
from .frame import Frame


def affine(frame: Frame, z: Values) -> tuple[Values, Values]:
    """(h, t) at points z of shape (N, rank)."""
    return frame.h_mean + z @ frame.h_slope, frame.t_mean + z @ frame.t_slope


def second_moments(z: Values) -> Values:
    """[1; z][1; z]ᵀ - diag(0, I) at each point: (N, 1 + rank, 1 + rank)."""
    full = np.concatenate([np.ones((z.shape[0], 1)), z], axis=1)
    out = full[:, :, None] * full[:, None, :]
    out[:, 1:, 1:] -= np.eye(z.shape[1])
    return np.asarray(out)


def tanh_contour(frame: Frame, fineness: float) -> tuple[Values, Values]:
    """For g even and decreasing in |h|: h moves by i tanh(h); returns (z, measure) of a one-dimensional rule."""
    slope = float(frame.h_slope[0])
    depth = min(0.5, 1.0 / abs(slope))
    points, cell = grid(1, depth / (4.0 * fineness))
    bend = np.tanh(frame.h_mean + slope * points[:, 0]) * np.sign(slope)
    z = points + 1j * depth * bend[:, None]
    return z, cell * gaussian(z) * (1.0 + 1j * depth * abs(slope) * (1.0 - bend**2))


def shift_contour(frame: Frame, sign: float, fineness: float) -> tuple[Values, Values]:
    """For g = e^(-yh), y = `sign`: h moves by i y; the first coordinate of z carries h."""
    slope = float(frame.h_slope[0])
    depth = min([0.5, *(1.0 / abs(s) for s in (slope, float(frame.t_slope[0])) if s)]) if slope else 0.0
    # The third moment of e^h has its weight three slopes further out.
    points = line((depth or 0.5) / (4.0 * fineness), REACH + 3.0 * min(abs(slope), 4.0))[:, None]
    cell = float(points[1, 0] - points[0, 0])
    z = points + 1j * depth * sign * np.sign(slope)
    return z, cell * gaussian(z)


def rotated_contour(frame: Frame, fineness: float, even: bool) -> tuple[Values, Values]:
    """For g = 3h² - t²: each eigen-axis of the quadratic form turns about its stationary point, by up to 20 degrees.

    `even`: keep one of each pair ±z, twice as heavy (odd moments are then for the caller to drop).
    """
    value, axes, centre = quadratic_form(frame)
    # A turn about a far centre multiplies the weight by exp(centre² sin²/(2 cos)): keep that small.
    angle = min(0.35, 1.5 / max(1.0, float(np.abs(centre).max())))
    turn = np.exp(-1j * angle * np.sign(value))
    reach = REACH / np.sqrt(np.cos(2 * angle)) + float(np.linalg.norm(centre)) * np.cos(angle) / np.cos(2 * angle)
    points, cells = polar(frame.rank, reach, fineness, even)
    z = (centre + points * turn) @ axes.T
    return z, cells * np.prod(turn) * gaussian(z)


def polar(rank: int, reach: float, fineness: float, half: bool) -> tuple[Real, Real]:
    """Points and cells of the ball of radius `reach` (or a half counted twice), dense where 1/(r² - ζ) has its poles."""
    nodes, weights = np.polynomial.legendre.leggauss(int(np.ceil(4.6 * reach * fineness)))
    radius, width = reach * (0.5 + 0.5 * nodes) ** 2, reach * (0.5 + 0.5 * nodes) * weights
    count = 2 if rank == 1 else 4 * int(np.ceil(11 * fineness))
    angles = (np.arange(count // 2 if half else count) + (0.0 if rank == 1 else 0.5)) * 2 * np.pi / count
    points = radius[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    cells = np.repeat(width if rank == 1 else radius * width * 2 * np.pi / count, angles.size)
    return points.reshape(-1, 2)[:, :rank], cells * (2.0 if half else 1.0)


def quadratic_form(frame: Frame) -> tuple[Real, Real, Real]:
    """3h² - t² = extreme + Σ_j value_j (axes_jᵀz - centre_j)²: (value, axes, centre)."""
    form = 3.0 * np.outer(frame.h_slope, frame.h_slope) - np.outer(frame.t_slope, frame.t_slope)
    value, axes = np.linalg.eigh(form)
    tilt = 3.0 * frame.h_mean * frame.h_slope - frame.t_mean * frame.t_slope
    with np.errstate(divide="ignore", invalid="ignore"):
        return value, axes, -(axes.T @ tilt) / value


def gradient_contour(
    curvature: Callable[[Values], Values], rank: int, fineness: float, depth: float = 0.4
) -> tuple[Values, Values]:
    """For any analytic g(z): z moves by -i depth ∇g/|∇g| (smoothed near stationary points)."""
    points, cell = grid(rank, depth / (4.0 * fineness))
    unit = np.eye(rank)

    def gradient(z: Real) -> Real:
        # Any smooth field will do, so a plain difference quotient is exact for our purpose.
        return np.stack([curvature(z + 0.01 * e) - curvature(z - 0.01 * e) for e in unit], axis=1) / 0.02

    size = gradient(points)
    floor = 0.1 * np.sqrt(cell * np.sum(gaussian(points)[:, None] * size**2)) + 1e-300

    def field(z: Real) -> Real:
        slope = gradient(z)
        return np.asarray(slope / np.sqrt(floor**2 + (slope**2).sum(axis=1, keepdims=True)))

    step = 0.02
    jacobian = np.empty((points.shape[0], rank, rank))
    for j, e in enumerate(unit):
        near, far, farther = (field(points + k * step * e) - field(points - k * step * e) for k in (1, 2, 3))
        jacobian[:, :, j] = (45.0 * near - 9.0 * far + farther) / (60.0 * step)
    z = points - 1j * depth * field(points)
    return z, cell * gaussian(z) * np.linalg.det(np.eye(rank) - 1j * depth * jacobian)
