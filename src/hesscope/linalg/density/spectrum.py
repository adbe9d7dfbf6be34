"""The spectral density: the measure (1/n) Σ_i δ(λ_i) of a symmetric operator, from few products."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Literal

import numpy as np

from ...arguments import as_float
from ...errors import refuse
from ...measure import Array, AtomicMeasure
from ...operators import Matrix
from ...results.spectra import SpectralDensity
from ...rng import Rng
from ..checked import with_check
from ..completion import MOST
from ..exact import exact_spectrum, is_small
from ..krylov.room import room_on_disk
from ..memory import vectors_that_fit
from ..resuming.checkpoint import kept_in
from ..validation import prepare, require_count
from .chebyshev import ChebyshevRun
from .slq import QuadratureLimits, SlqRun, vectors_of

DensityMethod = Literal["slq", "chebyshev"]
_EXACT = 480


@with_check
def spectral_density(
    op: Matrix,
    probes: int = 10,
    *,
    steps: int = 80,
    tol: float | None = None,
    method: DensityMethod = "slq",
    rng: Rng | int | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> SpectralDensity:
    """(1/n) Σ_i δ(λ_i) ≈ outliers/n + average over random unit v of Σ_j y²_{1j} δ(θ_j), θ and y from Lanczos on v.

    `probes` and `steps` are maxima. By default the run stops when its estimated error is what plain quadrature with
    all of them would have, usually after a tenth of the products; `tol` asks for an error of at most tol · E|λ − median|
    in W₁ and tol in the cdf; `tol=0` spends exactly probes × steps, or n where that is less. "slq" resolves outliers as sharp atoms and is the
    default; "chebyshev" needs four vectors of memory and spends `steps` products per probe, for a uniform resolution
    of π · range / (2 · steps). Small problems (n ≤ 480 at the defaults) are solved exactly by n products, and so is what
    would spend as many by a fixed plan (n ≤ 2000). Vectors that do not fit in a quarter of the free memory go to a file
    without a name, in `resume` or in the folder for temporary files; where there is no room for them either, two are kept:
    outliers are then not taken out, and the same accuracy takes many times the products (`method` says so). See docs/theory/algorithms.md.
    """
    for name, number in (("probes", probes), ("steps", steps)):
        require_count(name, number, "The defaults are 10 probes and 80 steps.")
    if tol is not None and not (as_float(tol) is not None and tol >= 0):
        refuse("tol must be >= 0", f"tol={tol}", "Use 0 for a fixed number of products, 0.02 for a good picture.")
    if method not in ("slq", "chebyshev"):
        refuse('method must be "slq" or "chebyshev"', f"{method!r}", "Leave it at 'slq'.")
    source = Rng.of(rng).child("density")
    counted = prepare(op)
    before = counted.count
    if is_small(counted, None, _exact_up_to(probes, steps, tol, method)):
        values, *_ = exact_spectrum(counted)
        return _assemble([], values, (), (0.0, 0.0), counted.count - before, "exact", counted.shape[0])
    arguments = {"probes": probes, "steps": steps, "tol": tol, "method": method, "rng": source}
    if method == "chebyshev":
        smooth = ChebyshevRun(counted, probes, steps, tol, source)
        with kept_in(resume, counted, "spectral_density", **arguments) as store:
            if store is not None:
                smooth.keep_in(store)
            smooth.run()
        lengths = (steps,) * len(smooth.parts)
        return _assemble(smooth.parts, np.zeros(0), lengths, smooth.errors, smooth.products, method, counted.shape[0])
    plan, room = QuadratureLimits(probes, steps, tol, full=True), None
    if vectors_that_fit(counted) < vectors_of(plan):
        room = room_on_disk(counted, vectors_of(plan), resume)
        plan = replace(plan, full=room is not None)
    run = SlqRun(counted, plan, source, room)
    with kept_in(resume, counted, "spectral_density", **arguments) as store:
        if store is not None:
            run.keep_in(store)
        run.run()
    lengths = tuple(chain.alpha.size for chain in run.chains)
    how = "slq" if run.plan.full else "slq without a basis"
    return _assemble(run.measures(), run.outliers, lengths, run.errors(), run.products, how, counted.shape[0])


def _exact_up_to(probes: int, steps: int, tol: float | None, method: str) -> int:
    """The size of a matrix that all products give for no more than a run would cost."""
    if method == "chebyshev" or tol == 0:
        return min(MOST, probes * steps) if not tol else 0
    # By default a run on a small matrix takes about half of what all probes and steps may cost.
    return min(_EXACT, int(0.6 * probes * steps)) if tol is None else 0


def _assemble(
    parts: list[AtomicMeasure],
    outliers: Array,
    steps: tuple[int, ...],
    errors: tuple[float, float],
    products: int,
    method: str,
    size: int,
) -> SpectralDensity:
    nodes, weights = [outliers], [np.full(outliers.size, 1.0 / size)]
    for part in parts:
        nodes.append(part.nodes)
        weights.append(part.weights * (size - outliers.size) / (size * len(parts)))
    whole = AtomicMeasure.of(np.concatenate(nodes), np.concatenate(weights))
    return SpectralDensity(
        nodes=whole.nodes,
        weights=whole.weights,
        size=size,
        outliers=np.sort(outliers)[::-1],
        probe_nodes=tuple(part.nodes for part in parts),
        probe_weights=tuple(part.weights for part in parts),
        steps=steps,
        error=errors[0],
        sup_error=errors[1],
        products=products,
        method=method,
    )
