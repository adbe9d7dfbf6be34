"""Is the optimiser's step stable: the largest curvature as the optimiser sees it, against the edge of that optimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..result import Result
from .spectra import Eigenpairs


@dataclass(frozen=True, eq=False)
class EdgeReading(Result):
    """The largest eigenvalues of P^(-1/2) (H + decay) P^(-1/2) against the edge of the optimiser whose P it is.

    `top` holds them with their residuals; its vectors, in the coordinates of that operator, are the warm start of the
    next reading. `rate` and `edge` are those of the reference group (the one with most parameters); rates, momenta
    and decays of other groups are inside P. `formula` says the edge in words. The preconditioner is held as it is:
    for mini-batch training the edge is a ceiling, not advice.
    """

    optimizer: str
    matrix: str
    top: Eigenpairs
    rate: float
    edge: float
    formula: str
    response: float
    decoupled_decay: float

    @property
    def sharpness(self) -> float:
        """The largest eigenvalue."""
        return float(self.top.values[0])

    @property
    def ratio(self) -> float:
        """lr · λ over the edge in the same units: above 1 the frozen step is unstable."""
        return self.sharpness / self.edge

    @property
    def ratio_error(self) -> float:
        """How far `ratio` may be off: an eigenvalue lies within the residual."""
        return float(self.top.residuals[0]) / self.edge

    @property
    def critical_rate(self) -> float:
        """The rate of the reference group at which the run is at the edge, all groups scaled alike; inf for none."""
        pull = self.rate * self.response * self.sharpness + self.decoupled_decay
        return math.inf if pull <= 0 else 2 * self.rate / pull
