"""A real torch optimiser as numbers: what it does to each parameter, and the eigenvalue at which that turns unstable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..curvature import Problem
from ..curvature.given_problem import need_problem
from ..errors import refuse
from ..operators.autocast import own_types
from ..space import ParameterSpace
from .kinds import SHOWN
from .matching import members_of
from .step_rules import StepRule, TensorStep


@dataclass(frozen=True, eq=False)
class OptimizerState:
    """An optimiser at one moment, its preconditioner held fixed: one `TensorStep` per tensor of `space`.

    `reference` is the rule of the group that holds most parameters; rates and edges are told in its units. Other
    groups enter with their own rate, momentum and decay, relative to it: P of `Preconditioned` holds them all, so
    that one number decides. The run is stable while the largest eigenvalue of P^(-1/2) (H + κ) P^(-1/2) is below
    `edge` (docs/theory/stability.md).
    """

    name: str
    space: ParameterSpace
    tensors: tuple[TensorStep, ...]
    reference: StepRule
    steps: int

    @property
    def rate(self) -> float:
        """The learning rate of the reference group."""
        return self.reference.rate

    @property
    def edge(self) -> float:
        """The eigenvalue at which the run turns unstable at its present rates."""
        return self.reference.edge

    @property
    def formula(self) -> str:
        """The edge of the reference group in words: its formula and its numbers."""
        return formula_of(self.reference)

    def ratio(self, eigenvalue: float) -> float:
        """lr · λ / (lr · edge): above 1 the frozen step is unstable."""
        return eigenvalue / self.edge

    def critical_rate(self, eigenvalue: float) -> float:
        """The rate of the reference group, all others scaled alike, at which this eigenvalue is at the edge."""
        rule = self.reference
        pull = rule.rate * rule.response * eigenvalue + rule.decoupled_decay
        return math.inf if pull <= 0 else 2 * rule.rate / pull

    @property
    def inverse_preconditioner(self) -> Tensor:
        """1/P as a flat float64 vector, rates and responses of groups relative to the reference; Muon's tensors have
        a matrix instead, of which this is the diagonal."""
        pieces = []
        for step, shape in zip(self.tensors, self.space.shapes, strict=True):
            if step.matrix is not None:
                side = step.matrix.diagonal()
                scale = (side if step.from_right else side[:, None]).expand(shape)
            else:
                scale = torch.ones(shape, dtype=torch.float64, device="cpu") if step.scale is None else step.scale
            pieces.append(self.relative(step.rule) * scale.reshape(-1))
        return torch.cat(pieces)

    @property
    def rates(self) -> Tensor:
        """The learning rate of every parameter, flat."""
        return self._spread([step.rule.rate for step in self.tensors])

    @property
    def coupled_decay(self) -> Tensor:
        """κ of every parameter, flat: what weight decay adds to the diagonal of the Hessian."""
        return self._spread([step.rule.coupled_decay for step in self.tensors])

    @property
    def decay_shift(self) -> Tensor:
        """What decoupled decay adds to the diagonal of the preconditioned operator, where it differs between groups."""
        unit = self.reference.rate * self.reference.response
        own = self.reference.decoupled_decay
        return self._spread([(step.rule.decoupled_decay - own) / unit for step in self.tensors])

    @property
    def floor(self) -> Tensor:
        """Which parameters, flat, have a second moment so small that eps alone sets their P."""
        found = []
        for step, size in zip(self.tensors, self.space.sizes, strict=True):
            found.append(
                torch.zeros(size, dtype=torch.bool, device="cpu")
                if step.floor is None
                else step.floor.reshape(-1).cpu()
            )
        return torch.cat(found)

    def relative(self, rule: StepRule) -> float:
        """How much stronger a group responds than the reference: its rate times its response."""
        return rule.rate * rule.response / (self.reference.rate * self.reference.response)

    def scaled(self, names: Sequence[str], factor: float) -> OptimizerState:
        """The same with the rates of these tensors multiplied; 0 freezes them."""
        changed = [
            replace(
                step,
                rule=replace(
                    step.rule, rate=factor * step.rule.rate, decoupled_decay=factor * step.rule.decoupled_decay
                ),
            )
            if name in names
            else step
            for name, step in zip(self.space.names, self.tensors, strict=True)
        ]
        return replace(self, tensors=tuple(changed))

    def _spread(self, numbers: list[float]) -> Tensor:
        sizes = torch.tensor(self.space.sizes, device="cpu")
        return torch.tensor(numbers, dtype=torch.float64, device="cpu").repeat_interleave(sizes)


@own_types()
def read_optimizer(
    problem: Problem, optimizer: Any, *, names: Sequence[str] | None = None, kind: str | None = None
) -> OptimizerState:
    """What `optimizer` does to the parameters of `problem`, as of now.

    optimizer: the torch optimiser that trains the problem's model (its tensors are found by identity; the problem
    must be at their present values), several in a list, or a `state_dict()`: then by the names that torch wrote
    into it, else in the order of `model.named_parameters()`, or of `names`. kind: the class of a state dict, where
    its settings do not tell.
    """
    need_problem(problem)
    members = members_of(problem, optimizer, names, kind)
    tensors = tuple(
        member.kind.rule(name, member.group, member.state, problem.parameters[name]) for name, member in members.items()
    )
    if len({step.rule.maximize for step in tensors}) > 1:
        refuse("all groups must minimise, or all maximise", "both", "Their edge is that of a game, not of a descent.")
    weights: dict[StepRule, int] = {}
    for step, size in zip(tensors, problem.space.sizes, strict=True):
        weights[step.rule] = weights.get(step.rule, 0) + size
    moving = {rule: size for rule, size in weights.items() if rule.rate > 0 and rule.response > 0}
    if not moving:
        refuse(
            "at least one group must have a positive rate",
            "rates of zero",
            "Read the state before the rate decays to 0.",
        )
    reference = max(moving, key=lambda rule: moving[rule])
    used = dict.fromkeys(SHOWN.get(member.kind.name, member.kind.name) for member in members.values())
    steps = max(_steps(member.state) for member in members.values())
    return OptimizerState(" + ".join(used), problem.space, tensors, reference, steps)


def _steps(state: Any) -> int:
    return int(state.get("step", 0)) if "step" in state else 0


def formula_of(rule: StepRule) -> str:
    """The edge of one rule as people write it."""
    above = "(2 - δ)" if rule.decoupled_decay else "2"
    numbers = [f"lr = {rule.rate:g}"]
    if rule.decoupled_decay:
        numbers.append(f"δ = lr · decay = {rule.decoupled_decay:.3g}")
    if rule.momentum == 0:
        text = f"{above} / lr"
    else:
        numbers.append(f"β = {rule.momentum:g}")
        numbers.append(f"response C = {rule.response:.4g}")
        text = f"{above} / (C lr)"
    return f"{text} with {', '.join(numbers)}: {rule.edge:.4g}"
