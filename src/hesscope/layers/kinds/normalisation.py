"""Normalisations: affine in their scale and shift, whatever they do to the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from .base import ExampleSquares, Kind, Roles

_OVER_LAST_AXES = (F.layer_norm, F.rms_norm)  # there the weight spans the last axes, elsewhere channels, axis 1
_ORDER: dict[Callable[..., Any], tuple[str, ...]] = {
    F.layer_norm: ("input", "normalized_shape", "weight", "bias", "eps"),
    F.rms_norm: ("input", "normalized_shape", "weight", "eps"),
    F.group_norm: ("input", "num_groups", "weight", "bias", "eps"),
    F.batch_norm: ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
    F.instance_norm: (
        *("input", "running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps"),
    ),
}


class Normalisation(Kind):
    """z = γ ∘ u + β with u the normalised input: layer, RMS, group, instance and (in eval mode) batch normalisation."""

    name = "normalisation"
    functions = tuple(_ORDER)

    def roles(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Roles | None:
        order = _ORDER[function]
        given = dict(zip(order, args, strict=False)) | kwargs
        if function is F.batch_norm and given.get("training"):
            return None  # examples see each other
        x, weight, bias = given["input"], given.get("weight"), given.get("bias")
        fixed = {name: value for name, value in given.items() if name not in ("input", "weight", "bias")}

        def normalised(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
            parts = {"weight": w} if "bias" not in order else {"weight": w, "bias": b}
            return function(x, **fixed, **parts)  # type: ignore[no-any-return]

        return Roles(x, weight, bias, normalised, {"last_axes": function in _OVER_LAST_AXES})

    def example_squares(self, roles: Roles, entries: bool) -> ExampleSquares:
        return NormalisationSquares(roles, entries)


class NormalisationSquares(ExampleSquares):
    """Squares of Σ_p u_p δ_p and Σ_p δ_p over the positions p that share the layer's scale."""

    def __init__(self, roles: Roles, entries: bool) -> None:
        super().__init__(roles, entries)
        self.unit = roles.apply(None, None)

    def add(self, delta: Tensor) -> None:
        if self.roles.weight is not None:
            self.weight = self.weight + self.reduce(self._summed(self.unit * delta).square())
        if self.roles.bias is not None:
            self.bias = self.bias + self.reduce(self._summed(delta).square())

    def _summed(self, t: Tensor) -> Tensor:
        """Over the positions that share the layer's weight: shape `(N, *weight)`."""
        if self.roles.options["last_axes"]:
            own = self.roles.weight if self.roles.weight is not None else self.roles.bias
            assert own is not None
            return t.reshape(len(t), -1, *own.shape).sum(1)
        return t.flatten(2).sum(-1) if t.ndim > 2 else t
