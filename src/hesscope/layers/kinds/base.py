"""What a kind of layer says about itself: which functions it is, and how it uses weight and bias."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import vjp, vmap

_CHUNK_NUMBERS = 16_000_000


@dataclass(frozen=True, eq=False)
class Roles:
    """One call of a torch function: its input, the tensors it uses as weight and bias, and the function of all three.

    `function(x, weight, bias)` repeats the call with other values; it is affine in the last two, which makes a layer.
    """

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    function: Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
    options: dict[str, Any]

    def apply(self, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """The output for the same input and other parameters."""
        return self.function(self.x, weight, bias)


class Kind(ABC):
    """A kind of layer: z is affine in weight and bias, whatever the input.

    What every kind gets from that for free: the change of z along a change of the parameters, the gradient of the
    parameters from that of z, and both example by example. Kinds override what they can do faster.
    """

    name: ClassVar[str]
    functions: ClassVar[tuple[Callable[..., Any], ...]]
    modules: ClassVar[tuple[type[nn.Module], ...]] = ()
    any_axes: ClassVar[bool] = False  # whether its closed forms take inputs with further axes behind the first

    @abstractmethod
    def roles(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Roles | None:
        """The roles in one call; None for a call that is not affine in its parameters, or not understood."""

    def neuron_axis(self, parameter: str) -> int | None:
        """Which axis of `weight` or `bias` counts neurons."""
        return 0

    def output_change(self, roles: Roles, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """How z moves along a direction in weight and bias (None: zero)."""
        directions = [
            None if own is None else (torch.zeros_like(own) if given is None else given)
            for own, given in ((roles.weight, weight), (roles.bias, bias))
        ]
        return roles.apply(*directions)

    def example_squares(self, roles: Roles, entries: bool) -> ExampleSquares:
        """An accumulator of squared per-example gradients; examples are the first axis of input and output."""
        return ExampleSquares(roles, entries)


class MatrixKind(Kind):
    """A kind whose weight is a matrix that multiplies an input at every position: z_p = W x_p + b, one x per group."""

    @abstractmethod
    def patches(self, roles: Roles, x: Tensor) -> Tensor:
        """The input `(examples, ...)` as `(examples, positions, groups, n)`: what the weight's rows multiply."""

    @abstractmethod
    def spread(self, z: Tensor) -> Tensor:
        """The output `(examples, ...)` as `(examples, positions, m)`."""

    @abstractmethod
    def gather(self, units: Tensor, like: Tensor) -> Tensor:
        """The inverse of `spread`, in the shape of `like`."""

    def groups(self, roles: Roles) -> int:
        return 1

    def as_matrix(self, weight: Tensor) -> Tensor:
        """A weight, or a direction in its space, as `(m, n)`."""
        return weight.flatten(1)

    def from_matrix(self, matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The inverse of `as_matrix`."""
        return matrix.reshape(shape)


class ExampleSquares:
    """Sums of squared per-example gradients over several backward passes: a number per example, or per entry.

    This one takes any kind, by one vector-Jacobian product per example, vectorised.
    """

    def __init__(self, roles: Roles, entries: bool) -> None:
        self.roles, self.entries = roles, entries
        self.weight: Tensor | float = 0.0
        self.bias: Tensor | float = 0.0

    def add(self, delta: Tensor) -> None:
        """Add the squares of one backward pass, given the gradient of z."""
        roles = self.roles
        found = iter(example_gradients(roles, delta))
        if roles.weight is not None:
            self.weight = self.weight + self.reduce(next(found).square())
        if roles.bias is not None:
            self.bias = self.bias + self.reduce(next(found).square())

    def result(self) -> dict[str, Tensor]:
        """The sums by role, for the roles that the layer has."""
        found = {"weight": self.weight, "bias": self.bias}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    def reduce(self, squares: Tensor) -> Tensor:
        """Squares of shape `(N, ...)`: summed over examples, or to one number per example."""
        return squares.sum(0) if self.entries else squares.flatten(1).sum(-1)


def example_gradients(roles: Roles, delta: Tensor) -> tuple[Tensor, ...]:
    """The gradients of weight and bias (those that there are) from that of z, one of each for every example."""
    own = tuple(t.detach() for t in (roles.weight, roles.bias) if t is not None)

    def gradients(x: Tensor, d: Tensor) -> tuple[Tensor, ...]:
        def output(*parameters: Tensor) -> Tensor:
            given = iter(parameters)
            weight, bias = (None if t is None else next(given) for t in (roles.weight, roles.bias))
            return roles.function(x[None], weight, bias)

        found: tuple[Tensor, ...] = vjp(output, *own)[1](d[None])
        return found

    chunk = max(1, _CHUNK_NUMBERS // max(1, sum(t.numel() for t in own)))
    found: tuple[Tensor, ...] = vmap(gradients, chunk_size=chunk)(roles.x, delta)
    return found


def parameter_gradients(roles: Roles, delta: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of weight and bias from that of z."""
    with torch.enable_grad():
        given = [None if t is None else t.detach().requires_grad_() for t in (roles.weight, roles.bias)]
        z = roles.apply(*given)
        wanted = [t for t in given if t is not None]
        found = iter(torch.autograd.grad(z, wanted, delta.reshape(z.shape), materialize_grads=True))
    weight, bias = (None if t is None else next(found) for t in given)
    return weight, bias


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str, default: Any = None) -> Any:
    """An argument by place or by name."""
    return args[place] if place < len(args) else kwargs.get(name, default)
