"""The trace of a symmetric operator."""

from __future__ import annotations

import math
from typing import Literal

import torch

from ..errors import refuse
from ..operators import Counted, Matrix
from ..results.spectra import Estimate
from ..rng import Rng
from .checked import with_check
from .estimate import warn_unmet
from .exact import exact_symmetric, is_small
from .memory import vectors_that_fit
from .trace_estimators import METHODS
from .validation import prepare, require_positive, require_products

TraceMethod = Literal["auto", "hutchinson", "hutch++", "xtrace", "xnystrace"]


@with_check
def trace(
    op: Matrix,
    tol: float = 0.01,
    method: TraceMethod = "auto",
    *,
    max_products: int | None = None,
    rng: Rng | int | None = None,
) -> Estimate:
    """tr A = Σ_i A_ii, until the standard error is at most tol · |tr A|.

    "auto" takes what the operator knows about itself, then the whole matrix when n ≤ 200, then XTrace. XTrace (two
    products per probe) and XNysTrace (one; A must be positive semi-definite) suit decaying spectra; plain Hutchinson
    needs 2‖A‖²_F / (tol tr A)² products. Warns when `max_products` (default: n, at most 2000) did not suffice.
    Reference: Epperly, Tropp and Webber (2024), "XTrace: making the most of every sample".
    """
    require_positive("tol", tol)
    if method not in ("auto", *METHODS):
        refuse(f"method must be one of auto, {', '.join(METHODS)}", f"{method!r}", "")
    counted = prepare(op)
    before = counted.count
    source = Rng.of(rng).child("trace")
    require_products(max_products, 1, "a trace")
    if method == "auto":
        known = counted.known_trace(tol, source, max_products)
        if known is not None:
            return known
        if is_small(counted, max_products):
            value = float(torch.trace(exact_symmetric(counted)))
            return Estimate(value, 0.0, counted.count - before, "dense", exact=True)
        method = "xtrace"
    limit = min(counted.shape[0], 2000) if max_products is None else max_products
    return estimate_trace(counted, method, tol, limit, source)


def estimate_trace(op: Counted, method: str, tol: float, limit: int, rng: Rng, what: str = "trace") -> Estimate:
    """Grow the estimator called `method` until its standard error, or the budget `limit`, ends it."""
    estimator, before = METHODS[method](op, rng), op.count
    require_products(limit, 2 * estimator.cost, method)
    room = max(estimator.least, vectors_that_fit(op) // estimator.memory)
    value, stderr = 0.0, math.inf
    while True:
        # Few probes flatter their own standard error, and stopping by it picks the flattering ones: start with enough.
        step = estimator.least if estimator.probes == 0 else max(1, estimator.probes // 4)
        affordable = (limit - (op.count - before)) // estimator.cost
        step = min(step, affordable, room - estimator.probes, op.shape[0] - estimator.probes)
        if estimator.probes and step < 1:
            warn_unmet(what, stderr, tol * abs(value), op, op.count - before)
            break
        estimator.grow(max(step, 2 if estimator.probes == 0 else 1))
        value, stderr = estimator.estimate()
        if stderr <= tol * abs(value):
            break
    return Estimate(value, stderr, op.count - before, method, exact=stderr == 0.0 and estimator.finished)
