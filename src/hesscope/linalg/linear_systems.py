"""Linear systems (A + damping · I) x = b by conjugate gradients or MINRES."""

from __future__ import annotations

import math
import warnings
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import refuse
from ..measure import Array
from ..operators import Counted, Layout, Matrix
from ..results.spectra import Solution
from .checked import with_check
from .validation import innermost, multiply, prepare, require_positive


@with_check
def solve(
    op: Matrix,
    b: Tensor | Array,
    method: Literal["cg", "minres"] = "cg",
    damping: float = 0.0,
    tol: float = 1e-6,
    max_products: int | None = None,
) -> Solution:
    """x = (A + damping · I)⁻¹ b, until ‖(A + damping · I) x − b‖ ≤ tol · ‖b‖.

    "cg" needs A + damping · I positive definite, as Gauss-Newton matrices are, and refuses negative curvature;
    "minres" takes any symmetric A. One product per step and four to seven vectors of memory; for b of shape `(n,)`.
    Warns when `max_products` (default: 5 n, at most 10 000) did not suffice or float rounding stopped the descent.
    """
    require_positive("tol", tol)
    if method not in ("cg", "minres"):
        refuse('method must be "cg" or "minres"', f"{method!r}", "Use minres for an indefinite Hessian.")
    if not (damping >= 0 and math.isfinite(damping)):
        refuse("damping must be finite and >= 0", f"damping={damping}", "Use 0 for the plain system.")
    counted = prepare(op)
    if not isinstance(b, Tensor | np.ndarray):
        refuse("b must be a tensor or an array", f"{type(b).__name__}", "Flatten the right-hand side.")
    b = torch.as_tensor(b)
    if b.ndim != 1 or b.shape[0] != counted.layout.local_size:
        refuse(f"b must have shape ({counted.layout.local_size},)", f"{tuple(b.shape)}", "Flatten the right-hand side.")
    column = b.to(dtype=counted.dtype, device=counted.device)[:, None]
    size = float(counted.layout.norms(column))
    if not math.isfinite(size):
        refuse("b must be finite", "NaN or infinity", "Check the right-hand side.")
    before = counted.count
    if size == 0.0:
        return Solution(torch.zeros_like(column[:, 0]), 0.0, True, 0, method)
    system = _Damped(counted, damping)
    limit = min(5 * counted.shape[0], 10_000) if max_products is None else max_products
    step = _cg if method == "cg" else _minres
    x = step(system, column / size, tol, max(1, limit - 1)) * size
    residual = float(counted.layout.norms(system.times(x) - column)) / size
    products = counted.count - before
    converged = residual <= tol
    if not converged:
        warnings.warn(
            f"{method} reached a relative residual of {residual:.1e} after {products} products, {tol:.1e} was asked for. "
            "Raise max_products or damping, ask for a larger tol, or use float64.",
            stacklevel=2,
        )
    return Solution(x[:, 0], residual, converged, products, method)


class _Damped:
    def __init__(self, op: Counted, damping: float) -> None:
        self.op, self.damping = op, damping
        self.layout: Layout = op.layout

    def times(self, x: Tensor) -> Tensor:
        out = multiply(self.op, x)
        return out.add(x, alpha=self.damping) if self.damping else out


def _cg(system: _Damped, b: Tensor, tol: float, limit: int) -> Tensor:
    layout = system.layout
    x, r, p = torch.zeros_like(b), b, b
    rho = float(layout.inner(r, r))
    # A tenth of the tolerance for what the recurrence and the true residual differ by.
    goal = (0.9 * tol) ** 2
    for _ in range(limit):
        image = system.times(p)
        curvature = float(layout.inner(p, image))
        if not curvature > 0:
            refuse(
                "conjugate gradients need positive curvature",
                f"{curvature:.1e} along a direction of {innermost(system.op)!r} + {system.damping:g} I",
                'Use method="minres", or raise damping.',
            )
        x = x.add(p, alpha=rho / curvature)
        r = r.sub(image, alpha=rho / curvature)
        previous, rho = rho, float(layout.inner(r, r))
        if rho <= goal:
            break
        p = r.add(p, alpha=rho / previous)
    return x


def _minres(system: _Damped, b: Tensor, tol: float, limit: int) -> Tensor:
    """Lanczos with the QR factorisation of its tridiagonal matrix updated by one Givens rotation per step."""
    layout = system.layout
    x, older, newest = torch.zeros_like(b), torch.zeros_like(b), b / float(layout.norms(b))
    step_older, step_old = torch.zeros_like(b), torch.zeros_like(b)
    beta, rest = 0.0, float(layout.norms(b))
    c_old, s_old, c, s = 1.0, 0.0, 1.0, 0.0
    for _ in range(limit):
        image = system.times(newest)
        alpha = float(layout.inner(newest, image))
        image = image.sub(newest, alpha=alpha).sub(older, alpha=beta)
        following = float(layout.norms(image))
        far, turned = s_old * beta, c_old * beta
        near, corner = c * turned + s * alpha, -s * turned + c * alpha
        length = math.hypot(corner, following)
        if length == 0.0:
            break
        direction = newest.sub(step_old, alpha=near).sub(step_older, alpha=far) / length
        c_old, s_old, c, s = c, s, corner / length, following / length
        x = x.add(direction, alpha=c * rest)
        rest = -s * rest
        if abs(rest) <= 0.9 * tol or following == 0.0:
            break
        step_older, step_old = step_old, direction
        older, newest, beta = newest, image / following, following
    return x
