"""Cross-entropy of a linear output layer as one closed form of hidden states and weight: logits come in chunks and go.

With f = x Wᵀ + b, slope δ = ∂ℓ/∂f and curvature A = ∂²ℓ/∂f², row by row: the gradient is (δ W, δᵀ x, Σ δ), and its derivative
along (u, U, c) is (ḋ W + δ U, ḋᵀ x + δᵀ u, Σ ḋ) with ḋ = A (u Wᵀ + x Uᵀ + c).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..losses.softmax import SoftmaxLoss

_CHUNK_BYTES = 32_000_000  # of logits; about six tensors of this size live at once: less than that is kept


@dataclass
class HeadTerms:
    """The loss terms of one batch: hidden states `x` `(R, d)` in the graph, and the weight that makes logits of them."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    names: tuple[str, str | None]  # of weight and bias
    labels: Tensor
    row_weight: Tensor
    count: float
    value: float = float("nan")  # Σ ℓ, once a slope or a value was computed
    keeps_logits: bool = True  # where one chunk holds all rows
    _only: SoftmaxLoss | None = None  # the loss of all rows, while they are kept

    def chunks(self) -> Iterator[tuple[slice, SoftmaxLoss]]:
        """Rows and their loss, logits included, a few at a time."""
        step = max(1, _CHUNK_BYTES // (len(self.weight) * self.weight.element_size()))
        if len(self.x) <= step and self.keeps_logits:
            self._only = self._only or self._rows(slice(None))
            yield slice(0, len(self.x)), self._only
            return
        for start in range(0, len(self.x), step):
            here = slice(start, min(start + step, len(self.x)))
            yield here, self._rows(here)

    def _rows(self, here: slice) -> SoftmaxLoss:
        bias = None if self.bias is None else self.bias.detach()
        logits = torch.nn.functional.linear(self.x.detach()[here], self.weight.detach(), bias)
        return SoftmaxLoss(logits, float("nan"), self.row_weight[here], self.labels[here], None)

    @property
    def held_bytes(self) -> int:
        """Logits and probabilities that stay, where one chunk holds all rows."""
        return 0 if self._only is None else 2 * self._only.f.nbytes

    def gradient(self, leaves: Mapping[str, Tensor], through_loss: bool) -> tuple[Tensor | None, ...]:
        """The gradient of the batch's sum as a graph; with `through_loss=False` the slope in the logits is held fixed."""
        slopes: tuple[Tensor, Tensor, Tensor | None] = _Slope.apply(self.x, self.weight, self.bias, self, through_loss)  # type: ignore[no-untyped-call]
        found: list[Tensor | None] = [None] * len(leaves)
        if self.x.requires_grad:
            wrt = list(leaves.values())
            found = list(torch.autograd.grad(self.x, wrt, slopes[0], create_graph=True, allow_unused=True))
        for name, slope in zip(self.names, slopes[1:], strict=True):
            if name is not None and name in leaves and slope is not None:
                place = list(leaves).index(name)
                own = found[place]
                found[place] = slope if own is None else own + slope
        return tuple(found)

    def slopes(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """(∂ℓ/∂x, ∂ℓ/∂W, ∂ℓ/∂b), and the value on the way."""
        totals, value = self._totals(), 0.0
        for here, rows in self.chunks():
            value += float(rows.value)
            totals.add(here, rows.output_gradient())
        self.value = value
        return totals.x, totals.weight, totals.bias

    def bent(self, ux: Tensor | None, uw: Tensor | None, ub: Tensor | None, curved: bool) -> _Totals:
        """The derivative of the slopes along a direction; without the loss's own curvature where it is not `curved`."""
        totals = self._totals()
        for here, rows in self.chunks():
            slope = rows.output_gradient()
            if curved:
                totals.add(here, rows.curvature(self.moved(here, ux, uw, ub)))
            if uw is not None:
                totals.x[here] += slope @ uw
            if ux is not None:
                totals.weight.addmm_(slope.T, ux[here])
        return totals

    def moved(self, here: slice, ux: Tensor | None, uw: Tensor | None, ub: Tensor | None) -> Tensor:
        """How the logits of some rows move along a direction in hidden states, weight and bias."""
        x, weight = self.x.detach()[here], self.weight.detach()
        out = x.new_zeros(len(x), len(weight)) if ux is None else ux[here] @ weight.T
        if uw is not None:
            out.addmm_(x, uw.T)
        return out if ub is None else out.add_(ub)

    def sandwich(self, middle: Any, first_row: int, ux: Tensor, uw: Tensor | None, ub: Tensor | None) -> _Totals:
        """Jᵀ `middle` J from hidden states, weight and bias to themselves, through the logits."""
        totals = self._totals()
        for here, rows in self.chunks():
            totals.add(here, middle(rows, self.moved(here, ux, uw, ub), first_row + here.start))
        return totals

    def _totals(self) -> _Totals:
        bias = None if self.bias is None else torch.zeros_like(self.bias)
        x, weight = self.x.detach(), self.weight.detach()
        return _Totals(x, weight, torch.zeros_like(x), torch.zeros_like(weight), bias)


class _Totals:
    """What flows back from the logits, summed over chunks."""

    def __init__(self, given: Tensor, matrix: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self._given, self._matrix = given, matrix
        self.x, self.weight, self.bias = x, weight, bias

    def add(self, here: slice, cotangent: Tensor) -> None:
        self.x[here] += cotangent @ self._matrix
        self.weight.addmm_(cotangent.T, self._given[here])
        if self.bias is not None:
            self.bias += cotangent.sum(0)


class _Slope(torch.autograd.Function):
    """(x, W, b) ↦ (∂ℓ/∂x, ∂ℓ/∂W, ∂ℓ/∂b); neither logits nor probabilities are kept for its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, terms: HeadTerms, curved: bool) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, terms.labels, terms.row_weight)
        ctx.terms, ctx.curved = terms, curved
        return terms.slopes()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        ux, uw, ub = grads
        if ux is None and uw is None and ub is None:
            return None, None, None, None, None
        found = ctx.terms.bent(ux, uw, ub, ctx.curved)
        return found.x, found.weight, found.bias, None, None
