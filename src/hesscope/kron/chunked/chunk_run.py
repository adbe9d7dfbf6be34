"""One chunk of data run through the model: inputs, gradients and second derivatives of chosen layers, unit by unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...curvature import Problem
from ...curvature.engines.backward import linear_at, noise_like
from ...curvature.losses.base import OutputLoss
from ...errors import refuse
from ...layers import Capture, CapturedLayer
from ...layers.proof import second_derivative_product
from ...layers.shared_captures import captured
from ...rng import Rng
from ..curvature_choice import LayerCurvature

_DIGITS = {torch.float64: 1e-8, torch.float32: 1e-3}


@dataclass
class ChunkRun:
    """The chunk's loss as a function of the outputs of `layers`, which are seen in the order of `run.layers`."""

    run: Capture
    layers: tuple[LayerCurvature, ...]
    near_outputs: ChunkRun | None = None  # the same with one layer close to the outputs, whose units are examples
    _pulled: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # u, and Jᵀu as a graph in it, by layer

    @staticmethod
    def of(
        problem: Problem, chunk: Any, layers: Sequence[LayerCurvature], last: LayerCurvature | None = None
    ) -> ChunkRun:
        """One forward pass; refuses a chunk in which the layers are not used as they were when they were tried."""
        every = list(layers) if last is None else [*layers, last]
        run = captured(problem, chunk, {one.layer.name for one in every})
        whole = ChunkRun(Capture(run.terms, [_once(run, one) for one in every], run.uses), tuple(every))
        found = whole.only(range(len(layers)))
        found.near_outputs = None if last is None else whole.only([len(layers)])
        return found

    @property
    def rows(self) -> OutputLoss:
        """What the loss counts, where it has outputs."""
        assert isinstance(self.run.terms, OutputLoss)
        return self.run.terms

    def only(self, indices: Sequence[int]) -> ChunkRun:
        """The same chunk with fewer layers."""
        part = Capture(self.run.terms, [self.run.layers[i] for i in indices], self.run.uses)
        return ChunkRun(part, tuple(self.layers[i] for i in indices))

    def shape(self, index: int) -> tuple[int, int, int]:
        """(U, P, m) of one layer."""
        units, positions, m = self.layers[index].units(self.run.layers[index].z.detach()).shape
        return units, positions, m

    def patches(self, index: int) -> Tensor:
        """x of one layer, `(U, P, groups, n)`."""
        return self.layers[index].patches(self.run.layers[index])

    def gradients(self, cotangent: Tensor) -> tuple[Tensor, ...]:
        """(∂f/∂z)ᵀ cotangent of every layer, `(U, P, m)`."""
        found = self.run.gradients(cotangent)
        return tuple(layer.units(g) for layer, g in zip(self.layers, found, strict=True))

    def second_derivative_products(self, index: int) -> SecondDerivative:
        """M of one layer as a map, by double backward."""
        (slope,) = self.only([index]).run.gradients(create_graph=True)
        return SecondDerivative(self.layers[index], self.run.layers[index].z, slope)

    def gauss_newton_product(self, index: int, y: Tensor) -> Tensor:
        """Jᵀ (∂²ℓ/∂f²) J y of one layer for y of shape `(U, P, m)`, all positions at once."""
        part, layer, z = self.only([index]), self.layers[index], self.run.layers[index].z
        if not len(self.rows.f) or not self.rows.f.requires_grad:
            return torch.zeros_like(y)
        if index not in self._pulled:
            free = linear_at(self.rows.f)
            self._pulled[index] = free, part.run.gradients(free, create_graph=True)[0]
        free, pulled = self._pulled[index]
        image = second_derivative_product(pulled, free, layer.raw(y, z))
        return part.gradients(self.rows.curvature(image))[0]

    def second_derivative(self, index: int) -> Tensor:
        """M_u = ∂²ℓ/∂z_u² of every unit, `(U, Pm, Pm)`, by one double-backward pass per entry of z_u."""
        units, positions, m = self.shape(index)
        product = self.second_derivative_products(index)
        out = product.z.new_zeros(units, positions * m, positions * m)
        for entry in range(positions * m):
            tangent = product.z.new_zeros(units, positions * m)
            tangent[:, entry] = 1
            out[:, entry] = product(tangent.view(units, positions, m)).flatten(1)
        out = (out + out.mT).div_(2)
        _check_together(out, product, self.layers[index].layer.name)
        return out


@dataclass
class SecondDerivative:
    """y ↦ M y for y of shape `(U, P, m)`, one double-backward pass each."""

    layer: LayerCurvature
    z: Tensor
    slope: Tensor

    def __call__(self, y: Tensor) -> Tensor:
        return self.layer.units(second_derivative_product(self.slope, self.z, self.layer.raw(y, self.z)))


def _check_together(matrix: Tensor, product: SecondDerivative, name: str) -> None:
    """A product with all entries at once: only where no unit acts on another is it that of the units' own matrices."""
    if not matrix.numel():
        return
    units, positions, m = product.layer.units(product.z.detach()).shape
    y = noise_like(Rng(0).child("kron", "together"), matrix, units, positions * m)
    ours, truth = (matrix @ y[..., None]).flatten(), product(y.view(units, positions, m)).flatten()
    if float((ours - truth).abs().max()) > _DIGITS.get(matrix.dtype, 1e-2) * float(matrix.abs().sum(-1).max()):
        refuse(
            "what interacts behind a layer must be the same for all examples",
            f"{name!r}, whose second derivatives reach further on some data than on the examples it was tried on",
            "Use hs.Hessian(problem).block(...) for it.",
        )


def _once(run: Capture, one: LayerCurvature) -> CapturedLayer:
    """The one call of a layer that uses its parameters, in this chunk as in the examples it was tried on."""
    calls = run.of(one.layer.name)
    own = one.layer.parameters
    if len(calls) != 1 or not calls[0].intact or any(run.uses[name] != 1 for name in own) or calls[0].weight not in own:
        refuse(
            "a layer must be used once in every forward pass, and nowhere else",
            f"{one.layer.name!r}, which is used otherwise on some of the data",
            "Use hs.Hessian(problem).block(...) for it.",
        )
    return calls[0]
