"""Which of the optimiser's tensors is which parameter of the problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, optim

from ..arguments import listed
from ..curvature import Problem
from ..errors import refuse
from .kinds import OptimizerKind, kind_named, kind_of, kind_of_groups

WRAPPERS = ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
MOST_WAYS = 10_000  # to deal out parameters to groups, before it is given up


@dataclass(frozen=True, eq=False)
class Member:
    """One tensor of an optimiser: its name in the problem, its group's settings, its state."""

    name: str
    kind: OptimizerKind
    group: Mapping[str, Any]
    state: Mapping[str, Any]


def members_of(problem: Problem, given: Any, names: Sequence[str] | None, kind: str | None) -> dict[str, Member]:
    """Every parameter of the problem with its place in the optimiser; refused where one has none, or two."""
    found: dict[str, Member] = {}
    for optimizer in given if isinstance(given, list | tuple) else [given]:
        plain = unwrapped(optimizer)
        if isinstance(plain, optim.Optimizer):
            members = _by_identity(problem, plain)
        elif isinstance(plain, Mapping):
            members = _by_state_dict(problem, plain, names, kind)
        else:
            refuse(
                "an optimiser must be a torch.optim.Optimizer, its state_dict(), or a list of such",
                type(plain).__name__,
                "Pass the optimiser that trains the model of this problem.",
            )
        for member in members:
            if member.name in found:
                refuse("every parameter must have one optimiser", f"{member.name!r} twice", "Pass each optimiser once.")
            found[member.name] = member
    missing = [name for name in problem.space.names if name not in found]
    if missing:
        refuse(
            "the optimiser's groups must hold every parameter of the problem",
            f"none for {listed(missing)}",
            "Choose the trained ones: problem.only([...]), or pass all optimisers as a list.",
        )
    return {name: found[name] for name in problem.space.names}


def unwrapped(optimizer: Any) -> Any:
    """The torch optimiser inside those of Lightning and Accelerate."""
    for _ in range(4):
        module = type(optimizer).__module__.partition(".")[0]
        inner = (
            getattr(optimizer, "optimizer", None)
            if module in ("accelerate", "lightning", "pytorch_lightning")
            else None
        )
        if inner is None:
            break
        optimizer = inner
    return optimizer


def _by_identity(problem: Problem, optimizer: optim.Optimizer) -> Iterator[Member]:
    kind = kind_of(optimizer)
    own = {id(reference()): name for name, reference in problem.origin.items() if reference() is not None}
    matched = False
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            name = own.get(id(tensor))
            if name is None or name not in problem.parameters:
                continue
            matched = True
            _refuse_moved(problem, name, tensor)
            yield Member(name, kind, group, optimizer.state.get(tensor, {}))
    if not matched:
        refuse(
            "the optimiser must hold the parameters of the model that the problem was made of",
            f"{type(optimizer).__name__} of other tensors",
            "Make the problem from the trained model itself, or pass optimizer.state_dict().",
        )


def _refuse_moved(problem: Problem, name: str, tensor: Tensor) -> None:
    """A preconditioner of now and a Hessian of before would make an edge of neither."""
    ours = problem.parameters[name]
    if not torch.equal(tensor.detach().to(ours), ours):
        refuse(
            "the problem must be at the parameters that the optimiser holds now",
            f"another value of {name!r}",
            "Make the problem after the step, use problem.at(model.state_dict()), or pass a checkpoint's state_dict().",
        )


def _by_state_dict(
    problem: Problem, given: Mapping[str, Any], names: Sequence[str] | None, kind: str | None
) -> Iterator[Member]:
    groups, states = given.get("param_groups"), given.get("state")
    if not isinstance(groups, list) or not groups or not isinstance(states, Mapping):
        refuse(
            "a state dict must have 'state' and 'param_groups'",
            f"{', '.join(map(str, list(given)[:5])) or 'nothing'}",
            "Save it with torch.save(optimizer.state_dict(), path).",
        )
    if not all(isinstance(g, Mapping) and isinstance(g.get("params"), list) for g in groups):
        refuse("every group of a state dict must list its params", "one without", "Save optimizer.state_dict() again.")
    known = kind_of_groups(groups) if kind is None else kind_named(kind)
    order = _order(problem, groups, states, names)
    everything = dict(problem.model.named_parameters())
    for group in groups:
        for index in group["params"]:
            name = order[index]
            state = states.get(index, {})
            _refuse_other_shape(name, everything[name], state)
            if name in problem.parameters:
                yield Member(name, known, group, state)


def _order(
    problem: Problem, groups: list[Mapping[str, Any]], states: Mapping[Any, Any], names: Sequence[str] | None
) -> dict[Any, str]:
    """The name of every index: given, written down by torch, or in the order of the model's parameters."""
    indices = [index for group in groups for index in group["params"]]
    written = [str(name) for group in groups for name in group.get("param_names", ())]
    everything = {name: tuple(p.shape) for name, p in problem.model.named_parameters()}
    if names is not None:
        chosen, source = list(names), "names="
    elif len(written) == len(indices):
        chosen, source = [_without_wrappers(name, everything) for name in written], "the names in the state dict"
    else:
        source = "the model"
        trained = {name: shape for name, shape in everything.items() if name in problem.parameters}
        fitting = next((shapes for shapes in (everything, trained) if len(shapes) == len(indices)), None)
        if fitting is None:
            refuse(
                "a state dict must have one entry per parameter of the model",
                f"{len(indices)} entries, for {len(everything)} parameters of which {len(trained)} are in the problem",
                "It is the state of another model; or pass names=[...] in the optimiser's order.",
            )
        chosen = list(fitting) if len(groups) == 1 else dealt_out(fitting, groups, states)
    if len(chosen) != len(indices):
        refuse(
            "a state dict must have one entry per name",
            f"{len(indices)} entries and {len(chosen)} names",
            "Give names=[...] in the optimiser's order.",
        )
    unknown = [name for name in chosen if name not in everything]
    if unknown or len(set(chosen)) != len(chosen):
        refuse(
            f"{source} must be those of different parameters of the model",
            repr(unknown[0]) if unknown else "one twice",
            f"It has: {', '.join(list(everything)[:8])}{', ...' if len(everything) > 8 else ''}.",
        )
    return dict(zip(indices, chosen, strict=True))


def _without_wrappers(name: str, known: Mapping[str, Any]) -> str:
    """A name without what torch.compile and data-parallel wrappers put into it, unless the model has it as it is."""
    plain = ".".join(part for part in name.split(".") if part not in WRAPPERS)
    return plain if name not in known and plain in known else name


def dealt_out(
    shapes: Mapping[str, tuple[int, ...]], groups: list[Mapping[str, Any]], states: Mapping[Any, Any]
) -> list[str]:
    """Names in the order of several groups, each of which keeps the model's order: by shapes, where that leaves one way.

    Trainers put matrices in one group and vectors in another, and there is one way then.
    """
    stacks = [[_shape(states.get(index)) for index in group["params"]] for group in groups]
    ways: dict[tuple[int, ...], tuple[int, list[int]]] = {(0,) * len(stacks): (1, [])}
    for shape in shapes.values():
        following: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        for taken, (count, path) in ways.items():
            for number, stack in enumerate(stacks):
                if taken[number] < len(stack) and stack[taken[number]] in (None, shape):
                    key = (*taken[:number], taken[number] + 1, *taken[number + 1 :])
                    before, known = following.get(key, (0, [*path, number]))
                    following[key] = (before + count, known)
        ways = following
        if len(ways) > MOST_WAYS:
            break
    count, path = ways.get(tuple(len(stack) for stack in stacks), (0, []))
    if count != 1 or len(ways) > 1:
        refuse(
            "a state dict of several groups must tell its parameters by names or shapes",
            "shapes that fit no order of the model" if not ways else "shapes that fit in several ways",
            "Make the optimiser from model.named_parameters(), or pass names=[...] in its order.",
        )
    return [name for number in range(len(stacks)) for name, own in zip(shapes, path, strict=True) if own == number]


def _shape(state: Any) -> tuple[int, ...] | None:
    """The shape that a parameter's state shows; None where it has none."""
    values = state.values() if isinstance(state, Mapping) else ()
    return next((tuple(value.shape) for value in values if isinstance(value, Tensor) and value.ndim), None)


def _refuse_other_shape(name: str, tensor: Tensor, state: Any) -> None:
    """Also of parameters outside the problem: one wrong shape shows that the order is wrong."""
    if not isinstance(state, Mapping):
        refuse("the state of a parameter must be a dict", type(state).__name__, "Save optimizer.state_dict() again.")
    for key, value in state.items():
        if isinstance(value, Tensor) and value.ndim and tuple(value.shape) != tuple(tensor.shape):
            refuse(
                f"the state of {name!r} must have its shape {tuple(tensor.shape)}",
                f"{key!r} of {tuple(value.shape)}",
                "It is the state of another model, or in another order: pass names=[...].",
            )
