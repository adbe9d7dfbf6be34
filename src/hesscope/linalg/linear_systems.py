"""Linear systems (A + damping · I) x = b by conjugate gradients or MINRES."""

from __future__ import annotations

import math
import os
import warnings
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..arguments import as_float
from ..errors import refuse
from ..measure import Array
from ..operators import Matrix
from ..operators.tensors import tensor_of
from ..results.spectra import Solution
from .checked import with_check
from .recurrences import ConjugateGradients, Minres
from .remembered import Remembered
from .resuming.checkpoint import kept_in, told_apart
from .validation import multiply, prepare, require_positive, require_products


@with_check
def solve(
    op: Matrix,
    b: Tensor | Array,
    *,
    method: Literal["cg", "minres"] = "cg",
    damping: float = 0.0,
    tol: float = 1e-6,
    max_products: int | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Solution:
    """x = (A + damping · I)⁻¹ b, until ‖(A + damping · I) x − b‖ ≤ tol · ‖b‖.

    "cg" needs A + damping · I positive definite, as Gauss-Newton matrices are, and refuses negative curvature;
    "minres" takes any symmetric A. One product per step and four to seven vectors of memory; for b of shape `(n,)`.
    Products are remembered where n ≤ 2000, so that ill-conditioned small systems take many steps but at most n products.
    Warns when `max_products` (default: 5 n steps, at most 10 000) did not suffice or float rounding stopped the descent.
    resume: a folder in which the run keeps its state; the same call goes on where a killed one stopped.
    """
    require_positive("tol", tol)
    if method not in ("cg", "minres"):
        refuse('method must be "cg" or "minres"', f"{method!r}", "Use minres for an indefinite Hessian.")
    found = as_float(damping)
    if found is None or not 0 <= found < math.inf:
        refuse("damping must be finite and >= 0", f"damping={damping}", "Use 0 for the plain system.")
    counted = prepare(op)
    if not isinstance(b, Tensor | np.ndarray):
        refuse("b must be a tensor or an array", f"{type(b).__name__}", "Pass one flat tensor.")
    b = tensor_of(b)
    if b.ndim != 1 or b.shape[0] != counted.layout.local_size:
        refuse(f"b must have shape ({counted.layout.local_size},)", f"{tuple(b.shape)}", "Flatten the right-hand side.")
    if b.is_complex():
        refuse("b must be real", f"{b.dtype}", "Solve for its real and its imaginary part apart.")
    column = b.to(dtype=counted.dtype, device=counted.device)[:, None]
    size = float(counted.layout.norms(column))
    if not math.isfinite(size):
        refuse("b must be finite", "NaN or infinity", "Check the right-hand side.")
    if size == 0.0:
        return Solution(torch.zeros_like(column[:, 0]), 0.0, True, 0, method)
    require_products(max_products, 2, "a solution and its residual")
    limit = min(5 * counted.shape[0], 10_000) if max_products is None else max_products
    known = Remembered.if_small(counted)
    # The recurrences are those of b / ‖b‖.
    run = (ConjugateGradients if method == "cg" else Minres)(known, damping, column / size)
    arguments = {"method": method, "damping": damping, "tol": tol, "b": told_apart(column, counted)}
    with kept_in(resume, counted, "solve", **arguments) as store:
        if store is not None:
            run.keep_in(store)
        # A tenth for what the recurrence and the true residual differ by; what is known whole needs no more steps.
        run.until(0.9 * tol, max(1, limit - 1), lambda: isinstance(known, Remembered) and known.full)
        x = run.x * size

        def gap() -> float:
            image = known.afresh(x) if isinstance(known, Remembered) else multiply(known, x)
            return float(counted.layout.norms(image.add(x, alpha=damping) - column)) / size

        residual = run.residual(gap)
    if residual > tol and isinstance(known, Remembered) and known.full:
        # Curvature that rounding alone may have made counts only where it solves the system: elsewhere there is no solution,
        # and the nearest one has nothing along it.
        for floor in (1, counted.shape[0]):
            x = known.solution(damping, column, floor)
            residual = gap()
            if residual <= tol:
                break
    converged = residual <= tol
    if not converged:
        warnings.warn(
            f"{method} reached a relative residual of {residual:.1e} after {run.products} products, {tol:.1e} was asked "
            "for. Raise max_products or damping, ask for a larger tol, or use float64.",
            stacklevel=3,
        )
    return Solution(x[:, 0], residual, converged, run.products, method)
