"""The Hessian of a trained network in its inputs, or in one of its activations, as a problem like any other."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import HesscopeError, refuse
from .data import is_example_tuple

if TYPE_CHECKING:
    from .problem import Problem


class InputsAsParameters(nn.Module):
    """The model with the inputs of all examples as its one parameter; called with the numbers of examples."""

    def __init__(self, model: nn.Module, inputs: Tensor) -> None:
        super().__init__()
        self.network = copy.deepcopy(model).requires_grad_(False)
        self.inputs = nn.Parameter(inputs.detach().clone())

    def forward(self, numbers: Tensor) -> Any:
        return self.network(self.inputs[numbers])


class ActivationAsParameter(nn.Module):
    """The model with the output of one module, for all examples, as its one parameter."""

    def __init__(self, model: nn.Module, name: str, inputs: Tensor, value: Tensor) -> None:
        super().__init__()
        self.network = copy.deepcopy(model).requires_grad_(False)
        self.name = name
        self.register_buffer("given", inputs.detach().clone())
        self.activation = nn.Parameter(value.detach().clone())

    def forward(self, numbers: Tensor) -> Any:
        value = self.activation[numbers]
        hook = self.network.get_submodule(self.name).register_forward_hook(lambda module, args, output: value)
        try:
            return self.network(self.given[numbers])  # type: ignore[index]
        finally:
            hook.remove()


def problem_in(wrt: str, of: Any, model: nn.Module, loss: Any, data: Any, **settings: Any) -> Problem:
    """The problem of `Problem.of` in "inputs", or in the output of the module called `wrt`; its parameters stay fixed."""
    if not is_example_tuple(data) or len(data) != 2:
        refuse(
            "a problem in inputs or activations needs data=(inputs, targets)", type(data).__name__, "Pass two tensors."
        )
    if not isinstance(model, nn.Module):
        refuse("model must be a torch.nn.Module", f"{type(model).__name__}", "Wrap a function in a small Module.")
    inputs, targets = data
    if wrt == "inputs":
        if not inputs.is_floating_point():
            refuse(
                "inputs must be real numbers to have a Hessian in them",
                f"{inputs.dtype}",
                "Name the embedding: wrt=...",
            )
        made: nn.Module = InputsAsParameters(model, inputs)
    else:
        made = ActivationAsParameter(model, wrt, inputs, _activation(model, wrt, inputs, settings.get("freeze", False)))
    made.train(model.training)
    found: Problem = of(made, loss, (torch.arange(len(inputs), device=inputs.device), targets), **settings)
    return found


def _activation(model: nn.Module, name: str, inputs: Tensor, freeze: bool) -> Tensor:
    modules = dict(model.named_modules())
    if not isinstance(name, str) or name not in modules or not name:
        shown = ", ".join([key for key in modules if key][:12])
        refuse("wrt must be 'inputs' or the name of a module", f"{name!r}", f"Modules: {shown}.")
    own = copy.deepcopy(model)
    seen: list[Any] = []
    own.get_submodule(name).register_forward_hook(lambda module, args, output: seen.append(output))
    try:
        with torch.no_grad():
            (own.eval() if freeze else own)(inputs)
    except HesscopeError:
        raise
    except Exception as error:
        refuse("the model must run on its inputs", f"{type(error).__name__}: {error}", "Check data=(inputs, targets).")
    if len(seen) != 1 or not isinstance(seen[0], Tensor) or not seen[0].is_floating_point():
        got = f"{len(seen)} calls" if len(seen) != 1 else type(seen[0]).__name__
        refuse("the module must run once and return one tensor", f"{name!r}: {got}", "Choose another module.")
    if len(seen[0]) != len(inputs):
        refuse(
            "an activation must have the examples in its first axis", f"shape {tuple(seen[0].shape)}", "Choose another."
        )
    return seen[0]
