"""The stages that multiply by H and G: both ends of the spectrum, traces, densities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from ..curvature import GaussNewton, Hessian
from ..errors import InputError
from ..linalg import eigenpairs, spectral_density, trace
from ..linalg.estimates.estimate import mean_and_stderr
from ..linalg.krylov.run import Which
from ..measure import AtomicMeasure
from ..operators import LinearOperator
from ..operators.tensors import tensor_of
from ..results.plan import LARGEST, PARTS, SMALLEST, SPECTRUM, TRACE
from ..results.spectra import Eigenpairs, Estimate, SpectralDensity
from ..rmt import Fit, fit
from .context import Context
from .planning import SECOND_OPINION
from .stages import Limit


def largest(run: Context, hessian: Hessian) -> Eigenpairs:
    """The k largest eigenpairs."""
    count = run.amount(LARGEST, run.config.k)
    return _end(run, hessian, "largest", LARGEST, count, run.config.tol, 3 * count, run.limit(LARGEST))


def largest_inputs(run: Context) -> tuple[object, ...]:
    """What the large eigenpairs depend on, and with them all that starts from them."""
    return (run.amount(LARGEST, run.config.k), run.config.tol, run.config.seed)


def smallest(run: Context, hessian: Hessian) -> Eigenpairs:
    """The most negative eigenpairs, coarser: they often lie close together."""
    count, tol = run.config.smallest, max(run.config.tol, 1e-2)
    return _end(run, hessian, "smallest", SMALLEST, count, tol, 40 + 10 * count, run.limit(SMALLEST) or 400)


def _end(
    run: Context, hessian: Hessian, which: Which, stage: str, count: int, tol: float, expected: int, limit: int | None
) -> Eigenpairs:
    inputs = (count, run.config.tol, run.config.seed)

    def compute() -> Eigenpairs:
        operator, kept = run.counted(stage, hessian, expected), run.stages.state(f"{which}-krylov", (inputs, limit))
        with _quietly():
            return eigenpairs(operator, count, which=which, tol=tol, rng=run.rng, max_products=limit, resume=kept)

    return run.stages.run(Eigenpairs, which, compute, inputs, Limit(limit, _converged))


def gauss_newton_parts(run: Context, G: GaussNewton, top: Eigenpairs) -> Estimate:
    """vᵀGv of each large eigenvector v: what of its eigenvalue the Gauss-Newton matrix carries."""

    def compute() -> Estimate:
        vectors = tensor_of(top.vectors).to(G.device, G.dtype)
        operator = run.counted(PARTS, G, vectors.shape[1])
        image = operator.apply(vectors)
        parts = (vectors.double() * image.double()).sum(0).cpu().numpy()
        return Estimate(parts, np.zeros_like(parts), vectors.shape[1], "products", exact=True, check=top.check)

    return run.stages.run(Estimate, "gauss-newton-parts", compute, largest_inputs(run))


def trace_of(run: Context, stage: str, operator: LinearOperator) -> Estimate:
    """The trace, until its standard error is `trace_tol` of it; where that stays out of reach, the result says so."""
    limit = run.limit(TRACE if stage == TRACE else PARTS)

    def compute() -> Estimate:
        with _quietly():
            return trace(run.counted(stage, operator, 60), tol=run.config.trace_tol, rng=run.rng, max_products=limit)

    return run.stages.run(
        Estimate,
        stage.replace(" ", "-"),
        compute,
        (run.config.trace_tol, run.config.seed),
        Limit(limit, met(run.config.trace_tol)),
    )


def density_of(run: Context, stage: str, operator: LinearOperator) -> SpectralDensity:
    """The spectral density from at most as many random vectors as planned."""
    steps, name = run.config.steps, "spectrum" if stage == SPECTRUM else "gauss-newton"
    most = run.config.probes if stage == SPECTRUM else max(2, run.config.probes // 3)
    probes = run.amount(stage, most)
    inputs = (probes, steps, run.config.seed)

    def compute() -> SpectralDensity:
        counted = run.counted(stage, operator, probes * steps // 4)
        state = run.stages.state(f"{name}-chains", inputs)
        return spectral_density(counted, probes, steps=steps, rng=run.rng.child(name), resume=state)

    return run.stages.run(SpectralDensity, name, compute, inputs)


def _converged(found: Eigenpairs) -> bool:
    return bool(found.converged.all())


def met(tol: float) -> Callable[[Estimate], bool]:
    """Whether an estimate has the error that was asked for."""
    return lambda found: found.exact or float(found.stderr) <= tol * abs(float(found))


def trace_by_products(run: Context, hessian: Hessian, top: Eigenpairs) -> Estimate:
    """tr H = Σ λ + tr(PHP), P the projection off the large eigenvectors: by random signs, without any structure."""

    def compute() -> Estimate:
        operator = run.counted("trace by products", hessian, SECOND_OPINION)
        layout, vectors = operator.layout, tensor_of(top.vectors).to(hessian.device, hessian.dtype)
        signs = layout.draw(
            run.rng.child("second opinion"), SECOND_OPINION, "rademacher", hessian.dtype, hessian.device
        )
        signs = signs - vectors @ layout.inner(vectors, signs).to(signs)
        samples = [float(layout.inner(z, operator.apply(z))) for z in torch.split(signs, 1, dim=1)]
        mean, stderr = mean_and_stderr(np.array(samples))
        return Estimate(float(top.values.sum()) + mean, stderr, SECOND_OPINION, "random signs", check=top.check)

    return run.stages.run(Estimate, "trace-by-products", compute, largest_inputs(run))


def closest_law(density: AtomicMeasure, size: int) -> Fit | None:
    """The limit law closest to the bulk in Kolmogorov distance; None where the spectrum is too small to fit one."""
    try:
        best = fit(density, size)
    except InputError:
        return None
    return min((best, *best.alternatives), key=lambda candidate: candidate.kolmogorov)


@contextmanager
def _quietly() -> Iterator[None]:
    """What did not converge is said in the result and in the ten lines, beside the number itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
