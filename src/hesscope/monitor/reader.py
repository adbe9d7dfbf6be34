"""One reading after another: what is measured at one step of a run, from where the last reading ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..curvature import GaussNewton, Problem
from ..curvature.following import FollowingProblem
from ..errors import HesscopeError
from ..operators import Counted
from ..partition import Partition
from ..results.monitoring import Reading
from ..rng import Rng
from ..step_stability import OptimizerState, Preconditioned, read_optimizer
from .batches import batch_sharpness
from .probes import DiagonalShare, probe
from .tracking import Pencil, Top, TrackedTops, track
from .warm_start import WarmStart

COLD = 40  # products that a reading without a start may take
BINDING = 3  # layers that a reading names
WIDEST = 1e12  # ratio of the entries of P up to which one space serves both eigenvalues


@dataclass(frozen=True)
class ReaderSettings:
    """What is read, and how well: see `Monitor`."""

    tol: float
    products: int
    slow_every: int
    renew_every: int
    batch_size: int | None


class Reader:
    """Holds what readings share: the problem that follows the model, warm vectors, the blocks of the parameters."""

    def __init__(
        self, following: FollowingProblem, settings: ReaderSettings, rng: Rng, *, strict: bool = False
    ) -> None:
        self.following, self.settings, self.rng, self.strict = following, settings, rng, strict
        self.count = 0
        self.start: WarmStart | None = None
        self.other_start: WarmStart | None = None
        self.shares = DiagonalShare()
        self._partition: Partition | None = None

    @property
    def kind(self) -> str:
        """What the next reading will be, for the forecast of its cost: cold, renewed, slow or quick."""
        if self.start is None:
            return "cold"
        if self.count % self.settings.renew_every == 0:
            return "renewed"
        return "slow" if self.count % self.settings.slow_every == 0 else "quick"

    def read(self, step: int, optimizer: Any) -> Reading:
        """The reading at this step; raises what is refused."""
        kind = self.kind
        notes: list[str] = []
        self.count += 1
        rng = self.rng.child("reading", self.count)
        problem = self.following.problem(anew=kind == "renewed")
        if self.start is not None and self.start.size != problem.space.size:
            self._forget()
        hessian = self.following.hessian(problem)
        op = Counted(hessian)
        state = _state(problem, optimizer, notes, self.strict)
        pencil = _pencil(state, problem)
        most = self.settings.products if kind in ("quick", "slow") and self.start is not None else COLD
        start, self.start = self.start, None  # where this one fails, the next begins anew
        tops = track(
            op, start, pencil, tol=self.settings.tol, most=most, rng=rng.child("start"), fresh=kind == "renewed"
        )
        self.start, warm = tops.remembered, start is not None
        self.following.learn(hessian)
        values: dict[str, Any] = {"sharpness": tops.plain.value, "sharpness_error": tops.plain.error}
        values |= self._preconditioned(op, state, pencil, tops, most, rng, problem)
        others = values.pop("_within")
        notes += values.pop("_notes", [])
        if kind != "quick":
            values |= self._slow(problem, tops, rng)
        products = op.count + values.pop("_others", 0)
        values |= {"converged": tops.plain.within(self.settings.tol) and others, "products": products, "warm": warm}
        return Reading(step, problem.loss_value(), notes=tuple(notes), **values)

    def _preconditioned(
        self,
        op: Counted,
        state: OptimizerState | None,
        pencil: Pencil | None,
        tops: TrackedTops,
        most: int,
        rng: Rng,
        problem: Problem,
    ) -> dict[str, Any]:
        """The top of P^(-1/2) (H + A) P^(-1/2) and what it binds; from the same products where P is a diagonal."""
        vector = tops.vector(tops.plain)
        if state is None:
            return {"binding": self._binding(vector, problem), "_within": True}
        if tops.other is not None and pencil is not None:
            top, direction = tops.other, tops.vector(tops.other) / pencil.scale.sqrt()
        elif (same := _multiple(state)) is not None:
            scale, added = same
            found = tops.plain
            top = Top(scale * (found.value) + added, found.coordinates, scale * found.residual, scale * found.error)
            direction = vector
        else:
            operator = Counted(Preconditioned(op, state))  # type: ignore[arg-type]
            found_tops = track(
                operator, self.other_start, None, tol=self.settings.tol, most=most, rng=rng.child("preconditioned")
            )
            self.other_start = found_tops.remembered
            top, direction = found_tops.plain, found_tops.vector(found_tops.plain)
        return {
            "preconditioned": top.value,
            "preconditioned_error": top.error,
            "edge": state.edge,
            "edge_ratio": state.ratio(top.value),
            "rate": state.rate,
            "optimizer": state.name,
            "binding": self._binding(direction, problem),
            "_within": top.within(self.settings.tol),
            "_notes": _untrained(direction, state),
        }

    def _slow(self, problem: Problem, tops: TrackedTops, rng: Rng) -> dict[str, Any]:
        partition = self._layers(problem)
        found = probe(tops.basis, partition.labels, partition.count, rng.child("probe"))
        self.shares.add(found)
        values: dict[str, Any] = {"trace": found.trace, "trace_error": found.trace_error}
        if (share := self.shares.value()) is not None:
            values["diagonal_share"], values["diagonal_share_error"] = share
        if problem.has_outputs and tops.plain.value > 0:
            v = tops.vector(tops.plain)
            inside = float(v.double() @ (GaussNewton(problem) @ v).double())
            values |= {"gauss_newton_share": inside / tops.plain.value, "_others": 1}
        if self.settings.batch_size is not None:
            batch = batch_sharpness(problem, self.settings.batch_size)
            if batch is not None:
                values["batch_sharpness"], values["batch_sharpness_error"], cost = batch
                values["_others"] = values.get("_others", 0) + cost
        return values

    def _layers(self, problem: Problem) -> Partition:
        if self._partition is None or len(self._partition.labels) != problem.space.size:
            self._partition = Partition.by("layer", problem)
        return self._partition

    def _binding(self, direction: Tensor, problem: Problem) -> dict[str, float]:
        """The layers that hold most of a direction, with their shares of its square."""
        partition = self._layers(problem)
        weight = direction.double().square().cpu()
        shares = torch.zeros(partition.count, dtype=torch.float64, device="cpu").index_add_(
            0, partition.labels.cpu(), weight
        )
        shares /= max(float(shares.sum()), 1e-300)
        order = torch.argsort(shares, descending=True)[:BINDING].tolist()
        return {partition.names[i]: round(float(shares[i]), 4) for i in order}

    def _forget(self) -> None:
        """Another number of parameters: nothing of before can start the next reading."""
        self.start = self.other_start = self._partition = None
        self.shares = DiagonalShare()


def _state(problem: Problem, optimizer: Any, notes: list[str], strict: bool) -> OptimizerState | None:
    """What the optimiser does; None with a note where it cannot be read, as before its first step."""
    if optimizer is None:
        return None
    try:
        return read_optimizer(problem, optimizer)
    except HesscopeError as error:
        if strict and not _new(optimizer):
            raise
        notes.append(str(error))
        return None


def _untrained(direction: Tensor, state: OptimizerState) -> list[str]:
    """A note where the direction lies in parameters that have hardly seen a gradient: their P is eps alone."""
    weight = direction.double().square().cpu()
    share = float(weight[state.floor].sum() / weight.sum().clamp_min(1e-300))
    if share < 0.5:
        return []
    return [
        f"{share:.0%} of the direction that binds lies in parameters with no second moment yet: eps alone sets their P"
    ]


def _new(optimizer: Any) -> bool:
    """Whether an optimiser does not move: it has not stepped yet, or its rates are zero; that is no mistake."""
    several = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
    groups = [group for one in several for group in getattr(one, "param_groups", ())]
    still = bool(groups) and all(group.get("lr") == 0 for group in groups)
    return still or all(isinstance(one, torch.optim.Optimizer) and not one.state for one in several)


def _multiple(state: OptimizerState) -> tuple[float, float] | None:
    """(scale, added) where the preconditioned matrix is scale · H + added; None where it is not of that form."""
    if state.reference.maximize or any(step.matrix is not None for step in state.tensors):
        return None
    inverse, decay, shift = state.inverse_preconditioner, state.coupled_decay, state.decay_shift
    for vector in (inverse, decay, shift):
        if not bool((vector == vector[0]).all()):
            return None
    scale = float(inverse[0])
    return scale, scale * float(decay[0]) + float(shift[0])


def _pencil(state: OptimizerState | None, problem: Problem) -> Pencil | None:
    """The pencil of a diagonal preconditioner that is no multiple of the identity."""
    if state is None or _multiple(state) is not None:
        return None
    if state.reference.maximize or any(step.matrix is not None for step in state.tensors):
        return None
    scale = state.inverse_preconditioner
    if not 0 < float(scale.max()) < WIDEST * float(scale.min()):
        return None
    added = state.coupled_decay + state.decay_shift / scale
    return Pencil(*(vector.to(device=problem.device, dtype=problem.dtype) for vector in (scale, added)))
