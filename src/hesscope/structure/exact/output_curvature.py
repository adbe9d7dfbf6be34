"""The loss's curvature in its outputs, ∂²ℓ/∂f², read one output at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ...curvature.losses.base import OutputLoss
from ...curvature.losses.elementwise import ElementwiseLoss
from ...curvature.losses.softmax import SoftmaxLoss

_ENTRIES = 48_000_000
_UNDECIDED = 0.01


class OutputCurvature(ABC):
    """A_n = ∂²ℓ_n/∂f² of every row n."""

    outputs: int

    @staticmethod
    def of(rows: Sequence[OutputLoss]) -> OutputCurvature:
        """The cheapest exact form: softmax, diagonal, or any other loss by products."""
        if all(isinstance(part, SoftmaxLoss) for part in rows):
            return SoftmaxCurvature([part for part in rows if isinstance(part, SoftmaxLoss)])
        if all(isinstance(part, ElementwiseLoss) for part in rows):
            return DiagonalCurvature(torch.cat([p.second for p in rows if isinstance(p, ElementwiseLoss)]))
        return AnyCurvature(rows)

    @abstractmethod
    def row(self, output: int, start: int) -> Tensor:
        """A_n[output, start:] of every row: shape `(N, outputs - start)`."""


class SoftmaxCurvature(OutputCurvature):
    """A = T (diag p - p pᵀ), with 1 - p taken from the softmax where it would cancel."""

    def __init__(self, rows: Sequence[SoftmaxLoss]) -> None:
        # √T goes into both factors of every product, so weights need no further care.
        root = torch.cat([part.weight for part in rows]).sqrt()[:, None]
        self.root = root
        self.p = torch.cat([part.p for part in rows]) * root
        self.outputs = self.p.shape[1]
        self._top = torch.cat([part.top for part in rows])
        self._rest = torch.cat([part.rest for part in rows])

    def diagonal(self, start: int = 0, stop: int | None = None) -> Tensor:
        """T p (1 - p) for some outputs: shape `(N, stop - start)`."""
        stop = self.outputs if stop is None else stop
        p = self.p[:, start:stop]
        out = p * (self.root - p)
        inside = ((self._top >= start) & (self._top < stop)).squeeze(1)
        n = torch.nonzero(inside).squeeze(1)
        column = self._top[n, 0] - start
        out[n, column] = p[n, column] * (self.root * self._rest)[n, 0]
        return out

    def row(self, output: int, start: int) -> Tensor:
        out = self.p[:, start:] * -self.p[:, output : output + 1]
        out[:, output - start] = self.diagonal(output, output + 1)[:, 0]
        return out


class DiagonalCurvature(OutputCurvature):
    """A = diag(a)."""

    def __init__(self, second: Tensor) -> None:
        self.second, self.outputs = second, second.shape[1]

    @property
    def same(self) -> bool:
        """Whether every output has the same curvature in every row, as for squared error."""
        return bool((self.second == self.second[:, :1]).all())

    def row(self, output: int, start: int) -> Tensor:
        out = torch.zeros_like(self.second[:, start:])
        out[:, output - start] = self.second[:, output]
        return out


class AnyCurvature(OutputCurvature):
    """A of any loss, by one product with a unit vector per output."""

    def __init__(self, rows: Sequence[OutputLoss]) -> None:
        self.parts = list(rows)
        self.outputs = rows[0].f.shape[-1]

    def row(self, output: int, start: int) -> Tensor:
        pieces = []
        for part in self.parts:
            unit = torch.zeros_like(part.f)
            unit[:, output] = 1
            pieces.append(part.curvature(unit.detach()).detach())
        return torch.cat(pieces)[:, start:]


def through_weight(rows: OutputLoss, weight: Tensor) -> Tensor | None:
    """Vᵀ A V of every row for an output matrix V `(C, h)`: shape `(N, h, h)`; None where it would lose digits or room.

    One product of all rows with the entries of V Vᵀ; the softmax's is a difference, so it needs rows that are not decided.
    """
    width = weight.shape[1]
    softmax = isinstance(rows, SoftmaxLoss) and float(rows.rest.min()) > _UNDECIDED
    if not (softmax or isinstance(rows, ElementwiseLoss)) or len(rows.f) * width**2 > _ENTRIES:
        return None
    pairs = (weight[:, :, None] * weight[:, None, :]).flatten(1)
    if isinstance(rows, ElementwiseLoss):
        return (rows.second @ pairs).view(-1, width, width)
    assert isinstance(rows, SoftmaxLoss)
    mean = rows.p @ weight
    covariance = (rows.p @ pairs).view(-1, width, width).sub_(mean[:, :, None] * mean[:, None, :])
    return covariance.mul_(rows.weight[:, None, None])
