"""Which optimiser it is: by its class, or by the settings that its state dict carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import optim

from ..errors import refuse
from . import step_rules
from .step_rules import Rule


@dataclass(frozen=True)
class OptimizerKind:
    """One torch optimiser: its step rule, and the settings by which its groups are told from others'."""

    name: str
    rule: Rule
    has: frozenset[str]
    lacks: frozenset[str] = frozenset()


def _kind(name: str, rule: Rule, has: str, lacks: str = "") -> OptimizerKind:
    return OptimizerKind(name, rule, frozenset(has.split()), frozenset(lacks.split()))


KINDS = (
    _kind("SGD", step_rules.sgd, "lr momentum dampening nesterov"),
    _kind("RMSprop", step_rules.rmsprop, "lr alpha centered eps"),
    _kind("Adam", step_rules.adam, "lr betas eps amsgrad"),
    _kind("AdamW", step_rules.adam, "lr betas eps amsgrad"),
    _kind("NAdam", step_rules.nadam, "lr betas eps momentum_decay"),
    _kind("RAdam", step_rules.radam, "lr betas eps decoupled_weight_decay", "amsgrad momentum_decay"),
    _kind("Adamax", step_rules.adamax, "lr betas eps", "amsgrad momentum_decay decoupled_weight_decay"),
    _kind("Adagrad", step_rules.adagrad, "lr lr_decay eps initial_accumulator_value"),
    _kind("Adadelta", step_rules.adadelta, "lr rho eps"),
    _kind("Muon", step_rules.muon, "lr momentum ns_coefficients ns_steps"),
)
# What is said of a run: this one is not what its users would expect of the name alone.
SHOWN = {"Muon": "Muon (linearised)"}


def known_kinds() -> str:
    return ", ".join(kind.name for kind in KINDS)


def kind_named(name: str) -> OptimizerKind:
    """The optimiser of this name, in any case."""
    for kind in KINDS:
        if kind.name.lower() == str(name).lower():
            return kind
    refuse("the optimiser must be one whose edge is known", f"{name!r}", f"There are: {known_kinds()}.")


def kind_of(optimizer: optim.Optimizer) -> OptimizerKind:
    """By class; a subclass with a step of its own is another optimiser."""
    if isinstance(optimizer, optim.LBFGS):
        refuse(
            "the optimiser must have a preconditioner that can be read",
            "LBFGS, whose steps come from line searches in a closure",
            f"There are: {known_kinds()}.",
        )
    for kind in reversed(KINDS):  # AdamW before Adam, from which it derives
        base = getattr(optim, kind.name)
        if isinstance(optimizer, base):
            own = next((c for c in type(optimizer).__mro__ if "step" in vars(c)), base)
            if not own.__module__.startswith("torch.optim"):
                refuse(
                    f"the step must be that of torch.optim.{kind.name}",
                    f"{type(optimizer).__name__}, which has its own",
                    "Pass its state_dict() if it steps alike all the same.",
                )
            return kind
    refuse(
        "the optimiser must be one of torch.optim whose edge is known",
        type(optimizer).__name__,
        f"There are: {known_kinds()}.",
    )


def kind_of_groups(groups: list[Mapping[str, Any]]) -> OptimizerKind:
    """By the settings of its groups, as a state dict has no class."""
    keys = set.intersection(*(set(group) for group in groups))
    if "tolerance_change" in keys:
        kind_named("LBFGS")
    fitting = [kind for kind in KINDS if kind.has <= keys and not kind.lacks & keys]
    if {kind.name for kind in fitting} == {"Adam", "AdamW"}:
        if any("decoupled_weight_decay" not in g and g.get("weight_decay") for g in groups):
            refuse(
                "a state dict with weight decay must say whether it is decoupled",
                "one of an older torch, which does not",
                "Name the optimiser: kind='AdamW' or kind='Adam'.",
            )
        decoupled = any(g.get("decoupled_weight_decay") for g in groups)
        return kind_named("AdamW" if decoupled else "Adam")
    if len(fitting) != 1:
        refuse(
            "a state dict must have the settings of a known optimiser",
            f"groups with {', '.join(sorted(map(str, keys - {'params'}))[:8]) or 'none'}",
            f"Name it with kind=; there are: {known_kinds()}.",
        )
    return fitting[0]
