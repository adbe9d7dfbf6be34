"""A stochastic number with its standard error and its cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from ...measure import Array
from ...operators import LinearOperator
from ..validation import innermost

Indices = np.ndarray[Any, np.dtype[np.intp]]


def mean_and_stderr(samples: Array) -> tuple[float, float]:
    """The mean of independent samples and a standard error that 95 % lie within twice of, however few they are."""
    m = samples.size
    return float(samples.mean()), float(student_widening(m) * samples.std(ddof=1) / np.sqrt(m))


def ratio_of_means(pairs: Array) -> tuple[float, float]:
    """Σa / Σb and its standard error over the draw of the pairs."""
    above, below = pairs.T
    if not below.sum() > 0:
        return math.nan, math.nan
    ratio = float(above.sum() / below.sum())
    n = len(pairs)
    spread = math.sqrt(float(np.sum((above - ratio * below) ** 2)) / (n * (n - 1)))
    return ratio, spread / float(below.mean())


def mean_of_squares(samples: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over the last axis of independent squared lengths, and a standard error that 95 % lie within twice of.

    Student's quantile takes the place of 2, since few samples know little of their spread. And squares of random
    products are skewed, down to χ² with one degree of freedom where the spectrum decays: a draw that is too small also
    finds its own spread too small, which the relative error makes up for (measured on spectra from flat to rank one).
    """
    m = samples.shape[-1]
    mean = samples.mean(-1)
    if m == 1:
        # The variance of a squared product is at most 2 · mean².
        return mean, math.sqrt(2.0) * student_widening(2) * mean
    spread = samples.std(-1) / math.sqrt(m)
    relative = spread / torch.where(mean > 0, mean, 1.0)
    return mean, student_widening(m) * spread * (1 + (1 + 2 / m) * relative)


def student_widening(m: int) -> float:
    """How much longer than for a known spread twice the standard error of m samples must be."""
    return float(stdtrit(m - 1, 0.97725)) / 2


def root_stderr(square_stderr: Tensor, root: Tensor) -> Tensor:
    """The standard error of a square root; of a root near 0 no more than √stderr, since |√a − √b| ≤ √|a − b|."""
    return torch.minimum(square_stderr / (2 * root.clamp_min(1e-300)), square_stderr.sqrt())


def exchangeable_mean(estimates: Callable[[Indices], Array], columns: int, most: int = 24) -> tuple[float, float]:
    """The mean of leave-one-out `estimates`, one per column, and its standard error.

    Their spread alone is too small (by 1.5 where spectra decay), because all of them share most of a sketch; the
    jackknife over columns is too large (by 2), as the Efron-Stein inequality says it must. Their geometric mean is
    measured to be right within about 1.3, on the safe side.
    """
    everything = np.arange(columns)
    # The columns are exchangeable, so any subset of deletions will do.
    deleted = everything if columns <= most else np.linspace(0, columns - 1, most).astype(int)
    without = np.array([estimates(np.delete(everything, i)).mean() for i in deleted])
    jackknife = np.sqrt((columns - 1) * np.mean((without - without.mean()) ** 2))
    mean, spread = mean_and_stderr(estimates(everything))
    return mean, float(np.sqrt(jackknife * spread))


def warn_unmet(what: str, stderr: float, wanted: float, op: LinearOperator, spent: int) -> None:
    """Say that the budget ended before the tolerance was met."""
    warnings.warn(
        f"the {what} of {innermost(op)!r} has a standard error of {stderr:.1e} after {spent} products, {wanted:.1e} was "
        "asked for. Raise max_products, or ask for a larger tol.",
        stacklevel=4,
    )
