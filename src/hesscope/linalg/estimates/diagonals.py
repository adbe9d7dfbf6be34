"""The diagonal and the row norms of a symmetric operator."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...operators import Counted, Matrix
from ...results.spectra import Estimate
from ...rng import Rng
from ..checked import with_check
from ..completion import completed, pays, without_rest
from ..exact import exact_symmetric, is_small
from ..memory import vectors_that_fit
from ..resuming.checkpoint import Store, kept_in
from ..validation import prepare, require_positive, require_products
from .estimate import root_stderr, squares_stderr, warn_unmet
from .sketch import Sketch, left_out

_LEAST = 2  # probes that give an error at all
Rows = Callable[[Sketch], tuple[Tensor, Tensor]]


@with_check
def diagonal(
    op: Matrix,
    tol: float = 0.05,
    *,
    max_products: int | None = None,
    rng: Rng | int | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Estimate:
    """d_i = A_ii, until ‖stderr‖ ≤ tol · ‖d‖.

    Takes what the operator knows about itself, then the whole matrix when n ≤ 200, then XDiag (two products per
    probe): diag(Q Qᵀ A) of a sketch plus random signs for what is left, every probe tested against the sketch of all
    the others. `value` and `stderr` are local `(n,)` arrays. Entries far below the largest need many products; for
    networks made of linear layers the operator's own answer is exact and cheaper.
    """
    counted, limit, before, source = _ready(op, tol, max_products, rng)
    source = source.child("diagonal")
    with kept_in(resume, counted, "diagonal", tol=tol, rng=source) as store:
        found = store.finished() if store is not None else None
        found = found or counted.known_diagonal(tol, source, max_products)
        if found is None and is_small(counted, max_products):
            found = _exact(torch.diagonal(exact_symmetric(counted)), counted, before)
        if found is not None:
            return found if store is None else store.finish(found)
        return _until(counted, _leave_one_out_diagonal, "diagonal", tol, limit, source, store)


@with_check
def row_norms(
    op: Matrix,
    tol: float = 0.05,
    *,
    max_products: int | None = None,
    rng: Rng | int | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Estimate:
    """r_i = ‖A_i‖₂ = √(A²)_ii, until ‖stderr‖ ≤ tol · ‖r‖.

    ‖A_i‖² = ‖(A Q)_i‖² + E (A(I − QQᵀ)ω)²_i, with Q and ω from the same probes as in `diagonal`; two products per probe.
    """
    counted, limit, before, source = _ready(op, tol, max_products, rng)
    if is_small(counted, max_products):
        return _exact(torch.linalg.vector_norm(exact_symmetric(counted), dim=1), counted, before)
    source = source.child("rows")
    with kept_in(resume, counted, "row norms", tol=tol, rng=source) as store:
        return _until(counted, _leave_one_out_rows, "row norms", tol, limit, source, store)


def _ready(op: Matrix, tol: float, limit: int | None, rng: Rng | int | None) -> tuple[Counted, int, int, Rng]:
    require_positive("tol", tol)
    counted = prepare(op)
    require_products(limit, 2 * _LEAST, "a diagonal or row norms")
    most = max(2 * _LEAST, min(counted.shape[0], 2000)) if limit is None else limit
    return counted, most, counted.count, Rng.of(rng)


def _exact(value: Tensor, op: Counted, before: int) -> Estimate:
    array = value[op.layout.local].cpu().numpy()
    return Estimate(array, np.zeros_like(array), op.count - before, "dense", exact=True)


def _until(op: Counted, rows: Rows, what: str, tol: float, limit: int, rng: Rng, store: Store | None) -> Estimate:
    sketch, before, layout = Sketch(op, "rademacher", rng), op.count, op.layout
    room = max(10, vectors_that_fit(op) // 6)
    begun = None
    loaded = None if store is None else store.load()
    if loaded is not None:
        own, begun = without_rest(loaded[1])
        sketch.restore(loaded[0], own)
        room, before = int(loaded[0]["room"]), before - int(loaded[0]["products"])
    while True:
        if sketch.columns:
            value, stderr = rows(sketch)
            wanted, reached = tol * float(layout.norms(value[:, None])), float(layout.norms(stderr[:, None]))
            if sketch.captured or reached <= wanted:
                break
            spent = op.count - before
            if begun is not None or pays(op, spent, limit, reached, wanted):
                basis, images = completed(sketch, begun, store, {"room": np.array(room)}, spent)
                return _of_all(basis, images, what, op.count - before)
        step = max(10 if sketch.columns == 0 else 1, sketch.columns // 4)
        step = min(step, (limit - (op.count - before)) // 2, room - sketch.columns)
        if sketch.columns and step < 1:
            warn_unmet(what, reached, wanted, op, op.count - before)
            break
        sketch.grow(max(step, _LEAST if sketch.columns == 0 else 1))
        if store is not None:
            state, vectors = sketch.state()
            store.save({**state, "room": room, "products": op.count - before}, list(vectors), vectors.values())
    return Estimate(value.cpu().numpy(), stderr.cpu().numpy(), op.count - before, "xdiag", sketch.captured)


def _of_all(basis: Tensor, images: Tensor, what: str, products: int) -> Estimate:
    """Everything, for what sampling would still have cost: A_ii = Σ_j B_ij (AB)_ij and ‖A_i‖ = ‖(AB)_i‖."""
    found = (basis * images).sum(1) if what == "diagonal" else torch.linalg.vector_norm(images, dim=1)
    value = found.cpu().numpy()
    return Estimate(value, np.zeros_like(value), products, "all products", exact=True)


def _leave_one_out_diagonal(sketch: Sketch) -> tuple[Tensor, Tensor]:
    """diag(Q_i Q_iᵀ A) + ω_i ∘ (I − Q_i Q_iᵀ) A ω_i, averaged over the probe i that is left out."""
    q, z = sketch.q.double(), sketch.z.double()
    shared = (q * z).sum(1)
    if sketch.captured:
        return shared, torch.zeros_like(shared)
    s, along = _left_out(sketch)
    qs = q @ s
    # What A ω_i has outside the images of the others lies along Q s_i.
    rest = sketch.omega.double() * qs * along
    value, stderr = _average(shared[:, None] - qs * (z @ s) + rest)
    return value, torch.hypot(stderr, torch.full_like(stderr, _hidden(sketch, rest)))


def _hidden(sketch: Sketch, rest: Tensor) -> float:
    """What an entry may have without a sign of it: of m probes, one in 2^(m-1) entries has the signs of another that
    dominates (of at most m), and what the sketch takes for that one's is its own. Twice its root-mean-square share."""
    op, m = sketch.op, rest.shape[1]
    squares = float(op.layout.norms(rest).square().sum()) / (m * op.layout.size)
    return 2.0 * math.sqrt(min(1.0, m * 2.0 ** (1 - m)) * squares)


def _leave_one_out_rows(sketch: Sketch) -> tuple[Tensor, Tensor]:
    z = sketch.z.double()
    shared = (z * z).sum(1)
    if sketch.captured:
        return shared.sqrt(), torch.zeros_like(shared)
    s, _ = _left_out(sketch)
    zs = z @ s
    w = torch.as_tensor(sketch.overlaps(), device=z.device)
    rest = sketch.y.double() - z @ (w - s * (s * w).sum(0))
    estimates, m = shared[:, None] - zs**2 + rest**2, sketch.columns
    # A square can come out negative where a row is tiny; its norm is then 0 within the error.
    value = estimates.mean(1).clamp_min(0.0).sqrt()
    # Where the spectrum decays, one eigenvector is what is left to all rows: squares of one normal number, which are short
    # together. Probes that are tested against each other are worth (2m + 2)/3 independent ones; measured from flat spectra
    # to ones that fall by a third from each eigenvalue to the next, from two probes on.
    left = (rest**2).mean(1)
    stderr = root_stderr(squares_stderr(left, left, (2 * m + 2) / 3, 0), value)
    rounding = 100 * float(torch.finfo(sketch.y.dtype).eps) * float(value.max())
    return value, stderr + rounding


def _left_out(sketch: Sketch) -> tuple[Tensor, Tensor]:
    s = left_out(sketch.r)
    along = (s * sketch.r).sum(0)
    return torch.as_tensor(s, device=sketch.q.device), torch.as_tensor(along, device=sketch.q.device)


def _average(estimates: Tensor) -> tuple[Tensor, Tensor]:
    m = estimates.shape[1]
    # Student's t has variance (m − 1)/(m − 3); and estimates that share a sketch vary together, so that their spread
    # is too small, measured as up to √2 where the spectrum is flat.
    widened = (2 * (m - 1) / max(m - 3, 1)) ** 0.5
    return estimates.mean(1), widened * estimates.std(1) / m**0.5
