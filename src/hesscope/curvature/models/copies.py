"""A copy of the user's model that belongs to one problem, so that the model itself is never touched."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..gradient_mode import plain

_PLAIN = (bool, int, float, complex, str)


def private_copy(model: nn.Module, state: Mapping[str, Tensor], selected: frozenset[str] | set[str]) -> nn.Module:
    """The model with the tensors of `state` as its parameters and buffers (shared, not copied).

    What was tied stays tied; only the `selected` parameters require a gradient. Other tensors that modules hold
    (constants, the derived weights of old-style weight-norm, which `deepcopy` refuses) are copied without history.
    """
    memo: dict[int, Any] = {}
    for name, parameter in model.named_parameters():
        memo[id(parameter)] = nn.Parameter(state[name], requires_grad=name in selected)
    for name, buffer in model.named_buffers():
        memo[id(buffer)] = state[name]
    floating = {t.dtype for t in state.values() if t.is_floating_point()}
    for module in model.modules():
        for held in tensors_in(vars(module)):
            if id(held) not in memo:
                memo[id(held)] = _constant(held, floating)
    made = _deepcopy(model, memo)
    _remember_all(made, model)
    _hold(made, state, selected, {id(tensor) for tensor in memo.values()})
    for module in made.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False  # the same derivatives, in tensors that can be differentiated again
    return made


def _remember_all(made: nn.Module, model: nn.Module) -> None:
    """Numbers, flags and texts that a module's own way of copying leaves out are what the model computes with."""
    copies = dict(made.named_modules())
    for name, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if value is None or isinstance(value, _PLAIN)}
        if name in copies and type(copies[name]) is type(module):
            copies[name].__dict__.update(own)


def _hold(made: nn.Module, state: Mapping[str, Tensor], selected: Collection[str], placed: Collection[int]) -> None:
    """Put in the tensors of `state` where copying did not: TorchScript copies its modules with values of their own."""
    for name, parameter in made.named_parameters():
        if id(parameter) not in placed:
            parameter.data = state[name]
            parameter.requires_grad_(name in selected)
    for name, buffer in made.named_buffers():
        if id(buffer) not in placed:
            buffer.data = state[name]


def with_tensors(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a private model that holds these very tensors, with their history, in the places of its own."""
    made = private_copy(model, {name: tensor.detach() for name, tensor in state.items()}, set())
    named = (*made.named_parameters(), *made.named_buffers())
    given = {id(tensor): state[name] for name, tensor in named}
    for module in made.modules():
        for held in (module._parameters, module._buffers):
            for local, tensor in held.items():
                if tensor is not None and id(tensor) in given:
                    held[local] = given[id(tensor)]  # type: ignore[assignment]
    return made


def _constant(tensor: Tensor, floating: set[torch.dtype]) -> Tensor:
    """A constant follows the model where that was cast to one other type."""
    value = plain(tensor).clone()
    if value.is_floating_point() and floating == {torch.float64}:
        value = value.double()
    return value


def _deepcopy(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    try:
        return copy.deepcopy(model, dict(memo))
    except Exception:
        # Attributes that cannot be copied (a generator, a lock, an open file) are shared; the rest is copied.
        for module in model.modules():
            for name, value in vars(module).items():
                if name not in ("_parameters", "_buffers", "_modules") and not _copies(value, memo):
                    memo[id(value)] = value
        return copy.deepcopy(model, memo)


def _copies(value: Any, memo: dict[int, Any]) -> bool:
    try:
        copy.deepcopy(value, dict(memo))
    except Exception:
        return False
    return True


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor of an attribute, also in plain containers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from tensors_in(item)
