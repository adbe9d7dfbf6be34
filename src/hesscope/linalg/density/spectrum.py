"""The spectral density: the measure (1/n) Σ_i δ(λ_i) of a symmetric operator, from few products."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ...errors import refuse
from ...measure import Array, AtomicMeasure
from ...operators import LinearOperator
from ...result import Result
from ...rng import Rng
from ..checked import with_check
from ..checkpoint import fingerprint
from ..exact import exact_spectrum, is_small
from ..memory import vectors_that_fit
from ..validation import prepare
from .chebyshev import kernel_polynomial
from .slq import MOST_OUTLIERS, Plan, SlqRun

Method = Literal["slq", "chebyshev"]


@dataclass(frozen=True, eq=False)
class SpectralDensity(AtomicMeasure, Result):
    """An estimate of (1/n) Σ_i δ(λ_i), as a measure with a standard error.

    `outliers` are eigenvalues known one by one (weight 1/n each); `probe_nodes` and `probe_weights` hold the rest as
    every random probe sees it. `error` is the estimated W₁ distance from the true spectrum, `sup_error` the estimated
    Kolmogorov distance (up to shifts of 1 % of the spread); both are 0 when the spectrum is exact.
    """

    size: int
    outliers: Array
    probe_nodes: tuple[Array, ...]
    probe_weights: tuple[Array, ...]
    steps: tuple[int, ...]
    error: float
    sup_error: float
    products: int
    method: str
    check: str = "unchecked"

    @property
    def exact(self) -> bool:
        """Whether this is the spectrum itself."""
        return not self.probe_nodes

    def cdf_stderr(self, x: ArrayLike) -> Array:
        """Standard error of `cdf(x)` over the draw of the probes."""
        points = np.asarray(x, dtype=np.float64)
        return self._stderr((self._bulk.nodes <= points[..., None]).astype(float))

    def density_stderr(self, x: ArrayLike, width: float) -> Array:
        """Standard error of `density(x, width)` over the draw of the probes."""
        z = (np.asarray(x, dtype=np.float64)[..., None] - self._bulk.nodes) / width
        return self._stderr(np.exp(-0.5 * z * z) / (width * math.sqrt(2 * math.pi)))

    def moment_stderr(self, k: int) -> float:
        """Standard error of `moment(k)` over the draw of the probes."""
        return float(self._stderr(self._bulk.nodes**k))

    def probe(self, index: int) -> AtomicMeasure:
        """The spectrum without the outliers, as probe `index` sees it."""
        return AtomicMeasure(self.probe_nodes[index], self.probe_weights[index])

    @property
    def _bulk(self) -> AtomicMeasure:
        if self.exact:
            return AtomicMeasure(self.nodes, self.weights)
        return AtomicMeasure.mixture([self.probe(i) for i in range(len(self.probe_nodes))])

    def _stderr(self, values: Array) -> Array:
        """For a uniformly random unit vector v in m dimensions, Var(vᵀf(H)v) = 2 Var(f(λ)) / (m + 2)."""
        if self.exact:
            return np.zeros(values.shape[:-1])
        weights = self._bulk.weights
        variance = np.maximum(values**2 @ weights - (values @ weights) ** 2, 0.0)
        rest = self.size - self.outliers.size
        return np.asarray(rest / self.size * np.sqrt(2 * variance / ((rest + 2) * len(self.probe_nodes))))


@with_check
def spectral_density(
    op: LinearOperator,
    probes: int = 10,
    steps: int = 80,
    *,
    tol: float | None = None,
    method: Method = "slq",
    rng: Rng | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> SpectralDensity:
    """(1/n) Σ_i δ(λ_i) ≈ outliers/n + average over random unit v of Σ_j y²_{1j} δ(θ_j), θ and y from Lanczos on v.

    `probes` and `steps` are maxima. By default the run stops when its estimated error is what plain quadrature with
    all of them would have, usually after a tenth of the products; `tol` asks for an error of at most tol · E|λ − median|
    in W₁ and tol in the cdf; `tol=0` spends exactly probes × steps. "slq" resolves outliers as sharp atoms and is the
    default; "chebyshev" needs four vectors of memory and spends `steps` products per probe, for a uniform resolution
    of π · range / (2 · steps). Small problems (n ≤ 200) are solved exactly. See docs/theory/algorithms.md.
    """
    if probes < 1 or steps < 1:
        refuse("probes and steps must be >= 1", f"probes={probes}, steps={steps}", "The defaults are 10 and 80.")
    if tol is not None and not tol >= 0:
        refuse("tol must be >= 0", f"tol={tol}", "Use 0 for a fixed number of products, 0.02 for a good picture.")
    if method not in ("slq", "chebyshev"):
        refuse('method must be "slq" or "chebyshev"', f"{method!r}", "")
    rng = (Rng(0) if rng is None else rng).child("density")
    counted = prepare(op)
    before = counted.count
    if is_small(counted):
        values, _ = exact_spectrum(counted)
        return _assemble([], values, (), (0.0, 0.0), counted.count - before, "exact", op.shape[0])
    if method == "chebyshev":
        if resume is not None:
            refuse('resume needs method "slq"', "method='chebyshev'", "Leave resume out.")
        parts, lengths, errors = kernel_polynomial(counted, probes, steps, tol, rng)
        return _assemble(parts, np.zeros(0), lengths, errors, counted.count - before, method, op.shape[0])
    full = vectors_that_fit(counted) >= steps + MOST_OUTLIERS
    run = SlqRun(counted, Plan(probes, steps, tol, full), rng)
    if resume is not None:
        run.keep_in(resume, fingerprint(op, "spectral_density", probes=probes, steps=steps, tol=tol, rng=rng))
    run.run()
    lengths = tuple(chain.alpha.size for chain in run.chains)
    return _assemble(run.measures(), run.outliers, lengths, run.errors(), run.products, method, op.shape[0])


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
