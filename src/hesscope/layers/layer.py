"""One layer in one problem: what it is, how its examples are arranged, and what was proven of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import refuse
from .arrangement import Arrangement
from .capturing import CapturedLayer
from .kinds import Kind, MatrixKind

OTHER_TYPE = "it runs in another type than its parameters or than other layers (autocast, a model of several types)"


@dataclass(frozen=True, eq=False)
class LayerFacts:
    """One layer: `exact` where all proofs hold, else `reason` says which did not.

    `gauss_newton`: the second derivative in its output is Jᵀ(∂²ℓ/∂f²)J, so that factors of the loss give it.
    `positions_apart`: positions of one example do not interact behind the layer; `terms_apart`: nor does any term of
    the loss depend on two of them (the squares of all outputs of an example are one term).
    """

    name: str
    kind: Kind
    weight: str | None
    bias: str | None
    weight_shape: tuple[int, ...]
    groups: int
    positions: int
    input_examples: Arrangement
    output_examples: Arrangement
    exact: bool
    gauss_newton: bool
    positions_apart: bool
    terms_apart: bool
    reason: str = ""

    @property
    def outputs(self) -> int:
        """m: rows of the weight as a matrix."""
        return self._matrix[0]

    @property
    def inputs(self) -> int:
        """n: columns of the weight as a matrix."""
        return self._matrix[1]

    @property
    def size(self) -> int:
        return self.outputs * self.inputs

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(name for name in (self.weight, self.bias) if name)

    @property
    def multiplies(self) -> bool:
        """Whether its weight is a matrix that multiplies an input at every position."""
        return isinstance(self.kind, MatrixKind) and self.weight is not None

    def patches(self, layer: CapturedLayer) -> Tensor:
        """What the weight multiplied in one call: `(examples, positions, groups, n)`."""
        kind = self._matrix_kind
        x = kind.patches(layer.roles, layer.roles.x.movedim(self.input_examples.axis, 0)).detach()
        return x.reshape(self.input_examples.examples(layer.roles.x), -1, *x.shape[2:])

    def units(self, z: Tensor) -> Tensor:
        """An output, or a gradient in it, as `(examples, positions, m)`; what is folded in counts as positions."""
        spread = self._matrix_kind.spread(z.movedim(self.output_examples.axis, 0))
        return spread.reshape(self.output_examples.examples(z), -1, spread.shape[-1])

    def raw(self, units: Tensor, like: Tensor) -> Tensor:
        """The inverse of `units`, in the shape of the output `like`."""
        moved = like.movedim(self.output_examples.axis, 0)
        spread = units.reshape(moved.shape[0], -1, units.shape[-1])
        found = self._matrix_kind.gather(spread, moved).movedim(0, self.output_examples.axis)
        # In the same layout: torch's double backward of batch-norm is wrong where layouts differ (30-100 %).
        return torch.empty_like(like, requires_grad=False).copy_(found)

    def matrix(self, weight: Tensor) -> Tensor:
        """The weight, or a direction in its space, as `(m, n)`."""
        return self._matrix_kind.as_matrix(weight)

    def stored(self, matrix: Tensor) -> Tensor:
        """The inverse of `matrix`: as the parameter is stored."""
        return self._matrix_kind.from_matrix(matrix, self.weight_shape)

    @property
    def _matrix_kind(self) -> MatrixKind:
        if not isinstance(self.kind, MatrixKind):
            refuse(
                "the layer's weight must be a matrix that multiplies its input",
                f"{self.name!r}, a kind of {self.kind.name}",
                "Use hs.Hessian(problem).block(...) for it.",
            )
        return self.kind

    @property
    def _matrix(self) -> tuple[int, int]:
        m, n = self.matrix(torch.empty(self.weight_shape, dtype=torch.float32, device="meta")).shape
        return int(m), int(n)


def described(layer: CapturedLayer, reason: str = "") -> LayerFacts:
    """The layer before anything is proven."""
    weight, kind = layer.roles.weight, layer.kind
    groups = kind.groups(layer.roles) if isinstance(kind, MatrixKind) else 1
    shape = () if weight is None else tuple(weight.shape)
    none = Arrangement()
    return LayerFacts(
        layer.name, kind, layer.weight, layer.bias, shape, groups, 1, none, none, False, False, False, False, reason
    )
