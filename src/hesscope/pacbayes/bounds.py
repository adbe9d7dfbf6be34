"""A bound on the true error from an observed error, with every term that goes into it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf, log, pi
from typing import Any

from ..arguments import as_float, is_count, shown
from ..errors import refuse
from ..result import Result
from .kl import binary_kl_inverse
from .settings import check_failure


@dataclass(frozen=True)
class Grid:
    """The prior variances allowed: λ_j = ceiling · exp(-j/precision), j = 1, 2, ... (b and c of the papers).

    Fixed before the data are seen; λ_j has weight 6/(π² j²) in the union bound.
    """

    precision: float = 100.0
    ceiling: float = 0.1

    def __post_init__(self) -> None:
        found = as_float(self.precision), as_float(self.ceiling)
        if not all(number is not None and 0 < number < inf for number in found):
            given = f"{shown(self.precision)} and {shown(self.ceiling)}"
            refuse("precision and ceiling must be positive and finite", given, "Try 100 and 0.1.")

    @property
    def largest(self) -> float:
        """λ_1: there is no larger one in the union bound."""
        return self.variance(1)

    def variance(self, index: int) -> float:
        """λ_j."""
        number = as_float(index)
        if number is None or not 1 <= number < inf or number != int(number):
            refuse("the index of a prior variance must be an integer >= 1", shown(index), "j = 0 is not in the union.")
        return self.ceiling * exp(-index / self.precision)

    def neighbours(self, variance: float) -> tuple[int, ...]:
        """The indices of the grid points beside a variance (one where it lies at or above the largest)."""
        found = as_float(variance)
        if found is None or not 0 < found < inf:
            refuse("a variance must be positive and finite", shown(variance), "Square a standard deviation.")
        place = self.precision * log(self.ceiling / variance)
        return tuple(sorted({max(1, int(place)), max(1, int(place) + 1)}))

    @staticmethod
    def price(index: int) -> float:
        """log(π² j²/6): what the union bound charges for λ_j."""
        return 2 * log(index) + log(pi**2 / 6)


@dataclass(frozen=True)
class Bound(Result):
    """P[true error of the stochastic network > value] ≤ failure, term by term."""

    value: float
    failure: float  # delta + delta_mc, over the draw of the training data and of the weights
    error: float  # mean error over the weight draws
    draws: int
    sampling: float  # log(2/delta_mc)/draws: what the Monte-Carlo estimate may be off, as a divergence
    error_bar: float  # bound on the training error of the stochastic network: kl⁻¹(error, sampling)
    kl: float  # KL(Q ‖ P), summed over the groups of parameters
    indices: tuple[int, ...]  # j of each group's prior variance
    variances: tuple[float, ...]  # λ_j of each group
    union: float  # Σ log(π² j²/6)
    confidence: float  # log(examples/delta)
    complexity: float  # (kl + union + confidence)/(examples - 1): B_RE of the papers
    examples: int
    delta: float
    delta_mc: float

    def lines(self) -> list[str]:
        """The terms as a reader would add them up."""
        chosen = ", ".join(f"{v:.3g} (j = {j})" for v, j in zip(self.variances, self.indices, strict=True))
        return [
            f"error of the stochastic network: {self.error:.4f} over {self.draws} draws, at most {self.error_bar:.4f}",
            f"KL {self.kl:.1f} + union {self.union:.1f} + log(m/delta) {self.confidence:.1f} nats, m = {self.examples}",
            f"prior variance: {chosen}",
            f"bound: {self.value:.4f} with probability {1 - self.failure:g}",
        ]


def bound(
    error: float,
    draws: int,
    kl: float,
    examples: int,
    index: int | Sequence[int],
    *,
    delta: float = 0.025,
    delta_mc: float = 0.01,
    grid: Grid | None = None,
) -> Bound:
    """kl⁻¹( kl⁻¹(error, log(2/δ')/draws), (KL + Σ log(π²j²/6) + log(m/δ))/(m-1) ), failing with probability δ + δ'.

    `error`: the mean over `draws` independent weights of errors in [0, 1], each scored on all training examples or on
    random ones. `kl`: KL(Q ‖ P) for the prior N(w₀, λ_j) whose `index` j is given (one per group of parameters with
    its own scale); w₀ must not depend on the `examples`.

    >>> found = bound(error=0.03, draws=60000, kl=4000.0, examples=60000, index=150)
    >>> round(found.value, 3), found.failure
    (0.14, 0.035)
    """
    grid = Grid() if grid is None else grid
    if not isinstance(grid, Grid):
        refuse("grid must be a Grid", shown(grid), "Use hs.pacbayes.Grid(precision=100, ceiling=0.1).")
    for name, value in (("delta", delta), ("delta_mc", delta_mc)):
        check_failure(name, value)
    if delta + delta_mc >= 1:
        refuse("delta + delta_mc must be below 1", f"{delta + delta_mc}", "Try 0.025 and 0.01.")
    observed, divergence = as_float(error), as_float(kl)
    if observed is None or not 0 <= observed <= 1:
        refuse("the error must be a mean of errors in [0, 1]", shown(error), "Use the 0-1 error, not the loss.")
    if not (is_count(draws, 1) and is_count(examples, 2)):
        given = f"{shown(draws)} and {shown(examples)}"
        refuse("a bound needs integers: at least 1 draw and 2 examples", given, "Check the counts.")
    if divergence is None or not divergence >= 0:
        refuse("a divergence must be at least 0", shown(kl), "Compute it with hs.pacbayes.gaussian_kl.")
    chosen: list[Any] = list(index) if isinstance(index, Iterable) else [index]
    if not chosen:
        refuse("a bound needs the index of at least one prior variance", "none", "Pass j, or one j per group.")
    for j in chosen:
        grid.variance(j)  # refuses what is no index
    indices = tuple(int(j) for j in chosen)
    variances = tuple(grid.variance(j) for j in indices)
    union = sum(grid.price(j) for j in indices)
    confidence = log(examples / delta)
    complexity = (kl + union + confidence) / (examples - 1)
    sampling = log(2 / delta_mc) / draws
    error_bar = float(binary_kl_inverse(error, sampling))
    value = float(binary_kl_inverse(error_bar, complexity))
    return Bound(
        value,
        delta + delta_mc,
        float(error),
        int(draws),
        sampling,
        error_bar,
        float(kl),
        indices,
        variances,
        union,
        confidence,
        complexity,
        int(examples),
        delta,
        delta_mc,
    )
