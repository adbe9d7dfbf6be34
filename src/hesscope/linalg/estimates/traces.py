"""The trace of a symmetric operator."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from ...errors import refuse
from ...operators import Counted, Matrix
from ...results.spectra import Estimate
from ...rng import Rng
from ..checked import with_check
from ..completion import completed, pays, without_rest
from ..exact import exact_symmetric, is_small
from ..memory import vectors_that_fit
from ..resuming.checkpoint import Store, kept_in
from ..validation import prepare, require_positive, require_products
from .estimate import warn_unmet
from .trace_estimators import METHODS, TraceEstimator, XTrace

TraceMethod = Literal["auto", "hutchinson", "hutch++", "xtrace", "xnystrace"]


@with_check
def trace(
    op: Matrix,
    tol: float = 0.01,
    *,
    method: TraceMethod = "auto",
    max_products: int | None = None,
    rng: Rng | int | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Estimate:
    """tr A = Σ_i A_ii, until the standard error is at most tol · |tr A|.

    "auto" takes what the operator knows about itself, then the whole matrix when n ≤ 200, then XTrace, and up to n = 2000
    the whole matrix again where sampling would cost as much: never more than n products (beyond n = 480 a quarter more
    where closed forms were tried first and missed the tolerance). XTrace (two
    products per probe) and XNysTrace (one; A must be positive semi-definite) suit decaying spectra; plain Hutchinson
    needs 2‖A‖²_F / (tol tr A)² products. Warns when `max_products` (default: n, at most 2000) did not suffice.
    resume: a folder in which the run keeps its state; the same call goes on where a killed one stopped.
    Reference: Epperly, Tropp and Webber (2024), "XTrace: making the most of every sample".
    """
    require_positive("tol", tol)
    if method not in ("auto", *METHODS):
        refuse(f"method must be one of auto, {', '.join(METHODS)}", f"{method!r}", "Leave it at 'auto'.")
    counted = prepare(op)
    source = Rng.of(rng).child("trace")
    require_products(max_products, 1, "a trace")
    arguments = {"tol": tol, "method": method, "rng": source}
    with kept_in(resume, counted, "trace", **arguments) as store:
        limit = min(counted.shape[0], 2000) if max_products is None else max_products
        if method != "auto":
            return estimate_trace(counted, method, tol, limit, source, store=store)
        found = (store.finished() if store is not None else None) or _at_once(counted, tol, source, max_products)
        if found is None or not (found.exact or found.stderr <= 1.05 * tol * abs(float(found))):
            spent = 0 if found is None or max_products is None else found.products
            found = _the_better(found, counted, tol, limit - spent, source, store)
        return found if store is None else store.finish(found)


def _the_better(known: Estimate | None, op: Counted, tol: float, limit: int, rng: Rng, store: Store | None) -> Estimate:
    """Plain sampling, where structure gives no answer or none that meets the tolerance."""
    if known is not None and limit < 2 * XTrace.cost:
        warn_unmet("trace", float(known.stderr), tol * abs(float(known)), op, known.products)
        return known
    with warnings.catch_warnings():
        if known is not None:
            warnings.simplefilter("ignore")
        plain = estimate_trace(op, "xtrace", tol, limit, rng, store=store, may_complete=True)
    if known is None:
        return plain
    spent = known.products + plain.products
    best = plain if plain.stderr <= known.stderr else known
    if best.stderr > tol * abs(float(best)):
        warn_unmet("trace", float(best.stderr), tol * abs(float(best)), op, spent)
    return replace(best, products=spent)


def _at_once(op: Counted, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
    """What the operator knows, else all of a small matrix, else None."""
    known = op.known_trace(tol, rng, max_products)
    if known is not None and (known.exact or not is_small(op, max_products)):
        return known
    if not is_small(op, max_products):
        return None
    before = op.count
    value = float(torch.trace(exact_symmetric(op)))
    return Estimate(value, 0.0, op.count - before, "dense", exact=True)


def estimate_trace(
    op: Counted,
    method: str,
    tol: float,
    limit: int,
    rng: Rng,
    what: str = "trace",
    store: Store | None = None,
    may_complete: bool = False,
) -> Estimate:
    """The estimator called `method`, grown."""
    estimator, before = METHODS[method](op, rng), op.count
    if op.shape[0] <= min(limit, estimator.cost * estimator.least):
        # Two or three probes say next to nothing of their own error, and the whole matrix costs no more than enough.
        return Estimate(float(torch.trace(exact_symmetric(op))), 0.0, op.count - before, "all products", exact=True)
    require_products(limit, 2 * estimator.cost, method)
    return grown(estimator, method, tol, limit, what, store, may_complete)


def grown(
    estimator: TraceEstimator,
    method: str,
    tol: float,
    limit: int,
    what: str,
    store: Store | None = None,
    may_complete: bool = False,
) -> Estimate:
    """Grow an estimator until its standard error, or the budget `limit`, ends it.

    `may_complete`: multiply the rest of the matrix out where that costs no more.
    """
    op, before = estimator.op, estimator.op.count
    room = max(estimator.least, vectors_that_fit(op) // estimator.memory)
    value, stderr = 0.0, math.inf
    begun = None
    loaded = None if store is None else store.load()
    if loaded is not None:
        own, begun = without_rest(loaded[1]) if may_complete else (loaded[1], None)
        estimator.restore(loaded[0], own)
        # Free memory may be less by now; a run that goes on keeps what it began with.
        room, before = int(loaded[0]["room"]), before - int(loaded[0]["products"])
        value, stderr = estimator.estimate()
    while not stderr <= tol * abs(value):
        spent = op.count - before
        if (
            may_complete
            and isinstance(estimator, XTrace)
            and spent
            and (begun is not None or pays(op, spent, limit, stderr, tol * abs(value)))
        ):
            basis, images = completed(estimator.sketch, begun, store, {"room": np.array(room)}, spent)
            whole = float(op.layout.sum((basis * images).sum()))
            return Estimate(whole, 0.0, op.count - before, "all products", exact=True)
        # Few probes flatter their own standard error, and stopping by it picks the flattering ones: start with enough.
        step = estimator.least if estimator.probes == 0 else max(1, estimator.probes // 4)
        affordable = (limit - (op.count - before)) // estimator.cost
        step = min(step, affordable, room - estimator.probes, op.shape[0] - estimator.probes)
        if estimator.probes and step < 1:
            warn_unmet(what, stderr, tol * abs(value), op, op.count - before)
            break
        estimator.grow(max(step, 2 if estimator.probes == 0 else 1))
        value, stderr = estimator.estimate()
        if store is not None:
            state, vectors = estimator.state()
            store.save({**state, "room": room, "products": op.count - before}, list(vectors), vectors.values())
    return Estimate(value, stderr, op.count - before, method, exact=stderr == 0.0 and estimator.finished)
