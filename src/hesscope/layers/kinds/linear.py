"""Linear maps over the last axis: `F.linear`, and the input-major form `torch.addmm(bias, x, weight)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import ExampleSquares, MatrixKind, Roles, argument
from .outer_squares import summed_outer_squares


class Linear(MatrixKind):
    """z = x Wᵀ + b with a weight `(m, n)`."""

    name = "linear"
    functions: ClassVar[tuple[Callable[..., Any], ...]] = (F.linear,)
    modules: ClassVar[tuple[type[nn.Module], ...]] = (nn.Linear,)
    any_axes = True

    def roles(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Roles | None:
        x, weight, bias = (argument(args, kwargs, i, n) for i, n in enumerate(("input", "weight", "bias")))
        if weight.ndim != 2 or x.ndim < 1:
            return None
        return Roles(x, weight, bias, lambda x, w, b: F.linear(x, _present(w), b), {})

    def example_squares(self, roles: Roles, entries: bool) -> ExampleSquares:
        return LinearSquares(roles, entries)

    def patches(self, roles: Roles, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, 1, x.shape[-1])

    def spread(self, z: Tensor) -> Tensor:
        return z.reshape(len(z), -1, z.shape[-1])

    def gather(self, units: Tensor, like: Tensor) -> Tensor:
        return units.reshape(like.shape)


class InputMajorLinear(Linear):
    """z = x W + b with a weight `(n, m)`, as GPT-2's Conv1D writes it."""

    name = "input-major linear"
    functions = (torch.addmm,)
    modules = ()

    def roles(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Roles | None:
        bias, x, weight = (argument(args, kwargs, i, n) for i, n in enumerate(("input", "mat1", "mat2")))
        plain = kwargs.get("beta", 1) == 1 and kwargs.get("alpha", 1) == 1 and len(args) <= 3
        if not plain or bias.shape != (weight.shape[1],):
            return None
        return Roles(x, weight, bias, _input_major, {})

    def neuron_axis(self, parameter: str) -> int | None:
        return 1 if parameter == "weight" else 0

    def example_squares(self, roles: Roles, entries: bool) -> ExampleSquares:
        return InputMajorSquares(roles, entries)

    def as_matrix(self, weight: Tensor) -> Tensor:
        return weight.T

    def from_matrix(self, matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
        return matrix.T


def is_input_major(module: nn.Module) -> bool:
    """Whether it is transformers' Conv1D, which cannot be asked for by its type where transformers is not there."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


class LinearSquares(ExampleSquares):
    """Where an example has one position: |δ|²|x|², and (δ∘δ)ᵀ(x∘x) over examples; else sums of outer products."""

    def add(self, delta: Tensor) -> None:
        x = self.roles.x
        if x.ndim == 2:
            self.bias = self.bias + delta.square()  # everything else waits for result()
            return
        d = delta.reshape(len(delta), -1, delta.shape[-1])
        flat = x.reshape(len(x), -1, x.shape[-1])
        self.bias = self.bias + self.reduce(d.sum(1).square())
        self.weight = self.weight + summed_outer_squares(d.transpose(1, 2), flat, self.entries)

    def result(self) -> dict[str, Tensor]:
        x = self.roles.x
        if x.ndim != 2 or not isinstance(self.bias, Tensor):
            return super().result()
        squares = self.bias
        if self.entries:
            return {"weight": squares.T @ x.square(), "bias": squares.sum(0)}
        norms = squares.sum(-1)
        return {"weight": norms * x.square().sum(-1), "bias": norms}


class InputMajorSquares(LinearSquares):
    """The same with the weight's axes exchanged."""

    def result(self) -> dict[str, Tensor]:
        found = super().result()
        return {**found, "weight": found["weight"].T} if self.entries else found


def _input_major(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    out = x @ _present(weight)
    return out if bias is None else out + bias


def _present(weight: Tensor | None) -> Tensor:
    assert weight is not None
    return weight
