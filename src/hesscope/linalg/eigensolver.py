"""Extreme eigenpairs by block Lanczos with thick restart."""

from __future__ import annotations

import os
import warnings

import numpy as np
import torch
from torch import Tensor

from ..errors import refuse
from ..measure import Array
from ..operators import Counted, LinearOperator, Matrix
from ..operators.tensors import tensor_of
from ..results.spectra import Bools, Eigenpairs
from ..rng import Rng
from .checked import with_check
from .exact import exact_spectrum, is_small
from .krylov.room import room_on_disk
from .krylov.run import Goal, KrylovRun, Which
from .memory import vectors_that_fit
from .resuming.checkpoint import kept_in, told_apart
from .validation import prepare, require_count, require_positive


@with_check
def eigenpairs(
    op: Matrix,
    k: int = 10,
    *,
    which: Which = "largest",
    tol: float = 1e-3,
    start: Tensor | Array | None = None,
    block: int | None = None,
    max_basis: int | None = None,
    max_products: int | None = None,
    rng: Rng | int | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Eigenpairs:
    """H vᵢ = λᵢ vᵢ for the k extreme eigenvalues, until ‖H vᵢ − λᵢ vᵢ‖ ≤ tol · max(|λᵢ|, ε^⅔ ‖H‖).

    Costs little more than the products a single Krylov space needs (20-30 for k = 10 on a trained network), and a few
    for a random probe that looks for further copies of multiple eigenvalues; memory is one vector per product until
    `max_basis` vectors, then it restarts with the best ones. Small problems, n ≤ max(200, 4k), are solved exactly.
    At most n pairs are returned. What did not converge is marked in `.converged` and warned about.

    start: `(n, j)` eigenvectors of a nearby problem, best first; they save products once they are accurate to about
    tol (a coarser start, such as one from a subset of the data, saves next to nothing). block: columns per product (by
    default 1, or more where the operator likes blocks). resume: a folder in which the run keeps its state; the same call goes on where a killed one stopped.
    See docs/theory/algorithms.md.
    """
    require_positive("tol", tol)
    require_count("k", k)
    for name, number in (("block", block), ("max_basis", max_basis), ("max_products", max_products)):
        if number is not None:
            require_count(name, number)
    source = Rng.of(rng)
    counted = prepare(op)
    before = counted.count
    n = counted.shape[0]
    goal = Goal(min(k, n), which, tol)
    warm = None if start is None else _checked_start(start, counted)
    if is_small(counted, max_products, 4 * k):
        return _dense(counted, goal, before)
    width = _block(counted, goal, block)
    limit, in_memory = basis_limit(counted, goal, width, max_basis)
    room = None if in_memory else room_on_disk(counted, limit, resume)
    run = KrylovRun(counted, goal, width, limit, source.child("eigenpairs"), room)
    budget = max_products if max_products is not None else max(1000, 100 * goal.count)
    # The default basis depends on the free memory, so a run that goes on keeps the one it began with.
    arguments = {
        "goal": goal,
        "block": width,
        "max_basis": max_basis,
        "rng": source,
        "start": told_apart(warm, counted),
    }
    with kept_in(resume, counted, "eigenpairs", **arguments) as store:
        if store is not None:
            run.keep_in(store)
        complete = run.run(warm, budget)
    values, y, residuals, converged = run.wanted()
    vectors = run.basis.vectors(y)
    if not (complete and converged.all()):
        _warn(run, converged, budget)
    return Eigenpairs(values, vectors, residuals, converged, run.products, tol)


def _checked_start(given: Tensor | Array, op: Counted) -> Tensor:
    """The start as a tensor of the operator; results from files hold arrays."""
    if not isinstance(given, Tensor | np.ndarray):
        refuse(
            "start must be a tensor or an array", f"{type(given).__name__}", "Pass the .vectors of a similar problem."
        )
    start = tensor_of(given)
    size = op.layout.local_size
    if start.ndim != 2 or start.shape[0] != size or start.shape[1] < 1:
        refuse(f"start must have shape ({size}, j)", f"{tuple(start.shape)}", "Pass the .vectors of a similar problem.")
    start = start.to(dtype=op.dtype, device=op.device)
    if not bool(torch.isfinite(op.layout.norms(start)).all()):
        refuse("start must be finite", "NaN or infinity", "Leave it out to start from random vectors.")
    return start


def _dense(op: Counted, goal: Goal, before: int) -> Eigenpairs:
    spectrum, all_vectors, matrix = exact_spectrum(op)
    chosen = goal.select(spectrum)
    values = spectrum[chosen]
    vectors = all_vectors[:, torch.as_tensor(chosen.copy(), device=matrix.device)].to(op.dtype)
    gap = matrix @ vectors.double() - vectors.double() * torch.as_tensor(values, device=matrix.device)
    residuals = torch.linalg.vector_norm(gap, dim=0).cpu().numpy()
    converged = residuals <= goal.threshold(values, float(np.abs(spectrum).max()), op.dtype)
    return Eigenpairs(values, vectors[op.layout.local], residuals, converged, op.count - before, goal.tol)


def _block(op: LinearOperator, goal: Goal, block: int | None) -> int:
    if block is not None:
        return min(block, op.shape[0])
    return max(1, min(op.preferred_block, goal.count))


def basis_limit(op: LinearOperator, goal: Goal, width: int, max_basis: int | None) -> tuple[int, bool]:
    """How many vectors may be held, and whether memory holds them: what was asked, else a quarter of the free memory; never
    too few to restart from, which are in a file where memory does not hold them.

    Restarting early costs next to nothing where eigenvalues stand apart (docs/theory/algorithms.md).
    """
    n, least = op.shape[0], goal.count + 2 * width + 2
    if max_basis is not None:
        if max_basis < min(least, n):
            refuse(f"max_basis must be >= {least} for this k and block", f"max_basis={max_basis}", "Raise it.")
        return max_basis, True
    # Asked once: what is free changes from one moment to the next.
    fit = vectors_that_fit(op)
    return max(least + 1, fit), fit > least


def _warn(run: KrylovRun, converged: Bools, budget: int) -> None:
    missing = f"{int((~converged).sum())} of {converged.size} eigenpairs did not converge"
    more = f"after {run.products} products. Raise max_products (now {budget})"
    if converged.all():
        message = f"further copies of multiple eigenvalues were not ruled out {more}."
    elif run.products >= budget:
        message = f"{missing} {more}, or ask for a larger tol; see .converged."
    else:
        noise = f"because products are only accurate to {run.basis.noise:.1e}"
        message = f"{missing} {noise}. Use float64, or ask for a larger tol; see .converged."
    # Above this function and the decorated one that calls it lies the user's own line.
    warnings.warn(message, stacklevel=4)
