"""Is the optimiser's step stable: the largest curvature as the optimiser sees it, against the edge of that optimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import refuse
from ..measure import Array
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


@dataclass(frozen=True, eq=False)
class Binding(Result):
    """Which blocks of parameters hold the largest eigenvector, and what freezing one would do to the edge.

    `share[i]` is the part of |v|² in block i: to first order, scaling its rate by 1 + ε raises the sharpness by the
    factor 1 + share · ε. `frozen[i]` is the largest eigenvalue with the block frozen, `halved[i]` with half its rate,
    as the leading eigenpairs tell it; it is at most `frozen_at_most[i]`, because of those that were not computed.
    """

    by: str
    names: tuple[str, ...]
    share: Array
    frozen: Array
    frozen_at_most: Array
    halved: Array
    sharpness: float

    @property
    def order(self) -> tuple[int, ...]:
        """Blocks by share, the binding one first."""
        return tuple(int(i) for i in np.argsort(-self.share, kind="stable"))

    def gain(self, block: str) -> float:
        """How much the critical rate grows when this block is frozen: a factor, at least 1; inf where nothing is left."""
        if block not in self.names:
            refuse("a block must be one of those measured", f"{block!r}", f"There are: {', '.join(self.names[:8])}.")
        left = float(self.frozen[self.names.index(block)])
        return self.sharpness / left if left > 0 else math.inf


@dataclass(frozen=True)
class BatchCurvature(Result):
    """What single batches of `batch_size` examples see, with standard errors over `batches` of them.

    `sharpness` is E[gᵀHg]/E|g|², with g and H of one batch: mini-batch SGD without momentum hovers where it is 2/lr
    (arXiv 2412.20553). `preconditioned` is the same in the optimiser's coordinates, for which no such law is known.
    `noise_scale` is tr Σ/|G|² in examples: batches much smaller have gradients that are mostly noise.
    """

    sharpness: float
    sharpness_stderr: float
    preconditioned: float
    preconditioned_stderr: float
    noise_scale: float
    noise_scale_stderr: float
    batch_size: float
    batches: int
    examples: int


@dataclass(frozen=True)
class CriticalStep(Result):
    """How far the optimiser's real next step can be stretched before the loss rises above where it is: the critical
    rate along this one direction lies between `calm_rate` and `rising_rate`, found by `passes` forward passes of the data.

    Both are NaN where the step goes uphill (`slope` >= 0), as momentum can.
    """

    rate: float
    calm_rate: float
    rising_rate: float
    slope: float
    loss: float
    passes: int

    @property
    def critical_rate(self) -> float:
        """The middle of the bracket."""
        return math.sqrt(self.calm_rate * self.rising_rate)

    @property
    def sharpness(self) -> float:
        """Critical sharpness, 2 over that rate: the curvature along the step in the units of gradient descent."""
        return 2 / self.critical_rate


@dataclass(frozen=True, eq=False)
class Stability(Result):
    """Is the optimiser's step stable here, what binds it, and what do batches and the step itself say.

    `hessian` and `gauss_newton` hold the leading eigenvalues of each as the optimiser sees it, with residuals, beside
    the edge (of `hessian` the leading eigenvector too). `bindings` tell by layer, head and neuron who holds that
    vector. `batch` is None where the data is one batch, `step` where no line search was asked for. `notes` say what
    limits the numbers. `str(result)` is the whole in words.
    """

    hessian: EdgeReading
    gauss_newton: EdgeReading | None
    bindings: tuple[Binding, ...]
    batch: BatchCurvature | None
    step: CriticalStep | None
    steps_taken: int
    parameters: int
    notes: tuple[str, ...] = ()

    @property
    def optimizer(self) -> str:
        return self.hessian.optimizer

    @property
    def ratio(self) -> float:
        """Where the run is: lr · λ over its edge; above 1 the frozen step is unstable."""
        return self.hessian.ratio

    @property
    def critical_rate(self) -> float:
        """The rate at which the full-batch step with this preconditioner turns unstable: a ceiling, not advice."""
        return self.hessian.critical_rate

    def binding(self, by: str) -> Binding:
        """Who binds, by "layer", "head" or "neuron"."""
        for one in self.bindings:
            if one.by == by:
                return one
        known = ", ".join(one.by for one in self.bindings) or "none"
        refuse("a binding must be one that was measured", f"{by!r}", f"There are: {known}.")

    def __str__(self) -> str:
        return "\n".join(lines_of(self))


def ceiling(optimizer: str) -> str:
    """The sentence that goes with every rate."""
    return (
        f"This is a ceiling, not advice: it holds for full-batch steps of {optimizer} with the preconditioner as it is; "
        "mini-batch training, above all with Adam, can turn unstable below it, and the edge moves as training goes on."
    )


def lines_of(found: Stability) -> list[str]:
    """A stability result in words, for people."""
    h = found.hessian
    values = "  ".join(f"{v:.4g}" for v in h.top.values)
    state = "above its edge" if h.ratio > 1 else "below its edge"
    lines = [
        f"{found.optimizer} after {found.steps_taken} steps, rate {h.rate:.4g}, {found.parameters:,} parameters"
        if found.steps_taken
        else f"{found.optimizer}, rate {h.rate:.4g}, {found.parameters:,} parameters",
        f"P^(-1/2) H P^(-1/2), largest: {values}  (residual {h.top.residuals[0]:.1e})",
    ]
    if found.gauss_newton is not None:
        values = "  ".join(f"{v:.4g}" for v in found.gauss_newton.top.values)
        lines.append(f"the same of Gauss-Newton:   {values}")
    lines += [
        f"edge: {h.formula}",
        f"now at {h.ratio:.3g} ± {h.ratio_error:.1g} of the edge: {state}",
        f"critical rate {h.critical_rate:.4g}. {ceiling(found.optimizer)}"
        if math.isfinite(h.critical_rate)
        else "no critical rate: the curvature that the optimiser sees is nowhere positive",
    ]
    for one in found.bindings:
        first = one.order[:3]
        shown = ", ".join(f"{one.names[i]} {one.share[i]:.0%}" for i in first)
        line = f"binding {one.by}s: {shown}"
        bound = float(one.frozen_at_most[first[0]])
        if one.sharpness > 0 and bound > 0 and len(one.names) > 1:
            gain, least = one.gain(one.names[first[0]]), one.sharpness / bound
            much = f"about {gain:.3g} times (at least {least:.3g})" if gain < 1e3 else f"{least:.3g} times or more"
            line += f"; without {one.names[first[0]]} the edge would be at {much} the rate"
        lines.append(line)
    if found.batch is not None:
        b = found.batch
        lines.append(
            f"batch sharpness {b.sharpness:.4g} ± {b.sharpness_stderr:.1g} over {b.batches} batches of {b.batch_size:.3g}"
            f" (2/rate is {2 / h.rate:.4g}), gradient noise scale {b.noise_scale:.4g} ± {b.noise_scale_stderr:.1g} examples"
        )
    if found.step is not None:
        if math.isnan(found.step.calm_rate):
            how = "the loss rises from the start: it goes uphill" if found.step.slope > 0 else "nothing changes"
            lines.append(f"along the real next step {how}")
        elif math.isinf(found.step.rising_rate):
            lines.append(f"along the real next step the loss falls at every rate up to {found.step.calm_rate:.4g}")
        else:
            lines.append(
                f"along the real next step the loss rises from rate {found.step.critical_rate:.4g} on "
                f"(critical sharpness {found.step.sharpness:.4g}, {found.step.passes} forward passes)"
            )
    return [*lines, *(f"note: {note}" for note in found.notes)]
