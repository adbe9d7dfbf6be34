"""A stochastic number with its standard error and its cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy.special import gammaincinv, stdtrit
from torch import Tensor

from ...measure import Array
from ...operators import LinearOperator
from ..validation import innermost

Indices = np.ndarray[Any, np.dtype[np.intp]]
_FEW = 10
_ROUNDING = 4.0  # units in the last place: of a probe's two products, of its projection, and of their inner product


def mean_and_stderr(samples: Array) -> tuple[float, float]:
    """The mean of independent samples and a standard error that 95 % lie within twice of, however few they are."""
    m = samples.size
    return float(samples.mean()), float(student_widening(m) * samples.std(ddof=1) / np.sqrt(m))


def mean_of_forms(samples: Array) -> tuple[float, float]:
    """The same of quadratic forms ωᵀAω, which are skewed where few eigenvalues matter.

    A draw on the short side then finds its spread too small as well. To first order the quantile of a studentised mean at
    four standard errors moves by (2 · 4² + 1) γ / 6√m for a skewness γ: a share 1.4 γ/√m of four. What normal samples
    show of it by chance is taken off its square.
    """
    mean, stderr = mean_and_stderr(samples)
    m, apart = samples.size, samples - mean
    square = float(np.mean(apart**2))
    if m < 3 or not square > 0:
        return mean, stderr
    skewness = float(np.mean(apart**3)) / square**1.5 * math.sqrt(m * (m - 1)) / (m - 2)
    chance = 6 * m * (m - 1) / ((m - 2) * (m + 1) * (m + 3))  # its variance in normal samples
    return mean, stderr * (1 + 33 / 24 * math.sqrt(max(0.0, skewness**2 - chance) / m))


def ratio_of_means(pairs: Array) -> tuple[float, float]:
    """Σa / Σb and its standard error over the draw of the pairs."""
    above, below = pairs.T
    if not below.sum() > 0:
        return math.nan, math.nan
    ratio = float(above.sum() / below.sum())
    n = len(pairs)
    spread = math.sqrt(float(np.sum((above - ratio * below) ** 2)) / (n * (n - 1)))
    return ratio, spread / float(below.mean())


def squares_stderr(mean: Tensor, variance: Tensor, m: float, freedom: int, bound: float = 0.0) -> Tensor:
    """The standard error of the mean of m squared lengths, from their sample variance with `freedom` degrees of freedom.

    Squares are skewed, down to χ² with one degree of freedom where the spectrum decays: a draw that is too small finds its own
    spread too small, too. So the mean is taken for χ² with 2m/ρ² degrees of freedom, ρ² the relative variance of a square, at
    most 2, which it is where nothing is known of it (`freedom` 0). And few samples know little of their spread: Student's
    quantiles at two and at four standard errors widen it, or, where draws are shared by many means, which then miss
    together, what it is at most weighs as `bound` samples.
    """
    square = torch.where(mean > 0, mean, 1.0) ** 2
    relative = torch.full_like(mean, 2.0)
    if bound:
        relative = (freedom * variance / square + 2.0 * bound) / (freedom + bound)
    elif freedom:
        widening = max(float(stdtrit(freedom, p)) / lengths for lengths, p in ((2, 0.97725), (4, 0.999)))
        relative = widening**2 * variance / square
    relative = relative.clamp(1e-12, 2.0)
    short = torch.from_numpy(np.interp(np.log((2.0 * m / relative).cpu().numpy()), *_shortfalls())).to(mean)
    # √ of a mean that is short by 4 · short stays within four of `root_stderr`, whichever of its two rules applies.
    return mean * torch.maximum(2 * short, short**2)


@lru_cache(maxsize=1)
def _shortfalls() -> tuple[Array, Array]:
    """(log ν, the standard error of √(χ²_ν/ν) relative to what was drawn), such that two and four of it cover."""
    freedom = np.geomspace(0.5, 1e14, 3000)
    needed = [
        ((2 * gammaincinv(freedom / 2, missed) / freedom) ** -0.5 - 1) / lengths
        for lengths, missed in ((2, 2.275e-2), (4, 3.17e-5))  # as of a normal number
    ]
    return np.log(freedom), np.maximum(*needed)


def with_rounding(stderr: float, size: float, dtype: torch.dtype) -> float:
    """A standard error beside rounding of products in this type, in sums of numbers of this size."""
    return math.hypot(stderr, _ROUNDING * float(torch.finfo(dtype).eps) * abs(size))


def student_widening(m: int) -> float:
    """How much longer than for a known spread twice the standard error of m samples must be."""
    return float(stdtrit(m - 1, 0.97725)) / 2


def root_stderr(square_stderr: Tensor, root: Tensor) -> Tensor:
    """The standard error of a square root; of a root near 0 no more than √stderr, since |√a − √b| ≤ √|a − b|."""
    return torch.minimum(square_stderr / (2 * root.clamp_min(1e-300)), square_stderr.sqrt())


def exchangeable_mean(
    estimates: Callable[[Indices], Array], columns: int, most: int = 24, skewed: bool = False
) -> tuple[float, float]:
    """The mean of leave-one-out `estimates`, one per column, and its standard error.

    Their spread alone is too small (by 1.5 where spectra decay), because all of them share most of a sketch; the
    jackknife over columns is too large (by 2), as the Efron-Stein inequality says it must. Their geometric mean is
    measured to be right within about 1.3, on the safe side. Of few columns, or of estimates that are `skewed` (what one large
    eigenvalue leaves to its probes), either may happen to be small: then the larger one counts.
    """
    everything = np.arange(columns)
    # The columns are exchangeable, so any subset of deletions will do.
    deleted = everything if columns <= most else np.linspace(0, columns - 1, most).astype(int)
    without = np.array([estimates(np.delete(everything, i)).mean() for i in deleted])
    jackknife = np.sqrt((columns - 1) * np.mean((without - without.mean()) ** 2))
    mean, spread = mean_and_stderr(estimates(everything))
    return mean, float(max(jackknife, spread) if skewed or columns < _FEW else np.sqrt(jackknife * spread))


def warn_unmet(what: str, stderr: float, wanted: float, op: LinearOperator, spent: int) -> None:
    """Say that the budget ended before the tolerance was met."""
    warnings.warn(
        f"the {what} of {innermost(op)!r} has a standard error of {stderr:.1e} after {spent} products, {wanted:.1e} was "
        "asked for. Raise max_products, or ask for a larger tol.",
        stacklevel=4,
    )
