"""A problem's own model without its parameters: a skeleton to copy, and a model that reads them from all processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..losses.base import OutputLoss
from .copies import private_copy, tensors_in
from .evaluation import Evaluation, ScalarLoss
from .parts import Exchange, GatheredParameters

_OWN = frozenset(vars(nn.Module()))


class SpreadEvaluation(Evaluation):
    """Model and loss at parameters of which each process holds a part."""

    exchange: Exchange

    def _is_own(self, parameters: Mapping[str, Tensor]) -> bool:
        return True

    def at(self, batch: Any, parameters: Mapping[str, Tensor]) -> OutputLoss | ScalarLoss:
        try:
            return super().at(batch, parameters)
        finally:
            self.exchange.forget()


def can_spread(evaluation: Evaluation) -> bool:
    """Whether parameters are read as attributes of modules only: not where they are held elsewhere too (recurrent layers),
    swapped for every pass, or where parts of the model run again. Coarser types would round in every sum over processes."""
    if not evaluation.private or evaluation.restored or evaluation.recomputes:
        return False
    if not {p.dtype for p in evaluation.model.parameters()} <= {torch.float32, torch.float64}:
        return False
    own = {id(p) for p in evaluation.model.parameters()}
    modules = list(evaluation.model.modules())
    if any(isinstance(module, torch.jit.ScriptModule) for module in modules):
        return False
    elsewhere = (value for module in modules for name, value in vars(module).items() if name not in _OWN)
    return not any(id(t) in own or t.grad_fn is not None for value in elsewhere for t in tensors_in(value))


def spread_evaluation(given: Evaluation, exchange: Exchange) -> SpreadEvaluation:
    """The same model and loss with parameters of that exchange."""
    names = {id(p): name for name, p in given.model.named_parameters()}
    model = private_copy(given.model, given.state, set())
    state = {name: _hollow(tensor) for name, tensor in given.state.items()}
    made = SpreadEvaluation(model, given.loss, given.split, state, given.freeze)
    made.exchange = exchange
    for name in ("private", "draws_randomly", "changes_inputs", "attends", "casts_to_float32", "settled"):
        setattr(made, name, getattr(given, name))
    for theirs, ours in zip(given.model.modules(), model.modules(), strict=True):
        held = {local: None if p is None else names[id(p)] for local, p in theirs._parameters.items()}
        ours.__dict__["_parameters"] = GatheredParameters(exchange, held)
    return made


def empty(evaluation: Evaluation) -> None:
    """Take the numbers of its parameters from a private model: it is then good for making copies with others."""
    for name, parameter in evaluation.model.named_parameters():
        parameter.data = _hollow(parameter.data)
        evaluation.state[name] = parameter.data


def _hollow(tensor: Tensor) -> Tensor:
    """Zeros without memory."""
    return tensor.detach().new_zeros(()).expand(tensor.shape)
