"""Cross-entropy rows whose slope and curvature stay accurate in a saturated network."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from .base import OutputLoss, random_signs
from .row_draws import RowDraws

_PIECE = 16_000_000  # bytes of logits whose value is summed at once: some six tensors of this size live meanwhile


class SoftmaxLoss(OutputLoss):
    """ℓ_r = T_r log Σ_c e^(f_c) - Σ_c t_c f_c, with T = Σ_c t_c: weighted hard labels, or soft targets.

    Everything is measured from the largest logit k. With s = Σ_(c≠k) e^(f_c - f_k), log1p(s) and s/(1+s) = 1 - p_k are
    exact to rounding however close p_k is to one; `log_softmax` loses those digits (1 - p_k is then a difference of
    two numbers near one), which is where float32 products of trained networks go wrong by per cents.
    """

    likelihood = True

    def __init__(self, f: Tensor, count: float, weight: Tensor, labels: Tensor | None, soft: Tensor | None) -> None:
        self.f, self.count = f, count
        self.weight, self.labels, self.soft = weight, labels, soft

    @cached_property
    def top(self) -> Tensor:
        """The place k of each row's largest logit, shape `(R, 1)`."""
        return self.f.detach().argmax(-1, keepdim=True)

    @cached_property
    def _probabilities(self) -> tuple[Tensor, Tensor]:
        z = self.f.detach()
        e = (z - z.gather(-1, self.top)).exp_().scatter_(-1, self.top, 0.0)
        s = e.sum(-1, keepdim=True)
        return e.div_(1 + s).scatter_(-1, self.top, 1 / (1 + s)), s / (1 + s)

    @property
    def p(self) -> Tensor:
        """softmax(f)."""
        return self._probabilities[0]

    @property
    def rest(self) -> Tensor:
        """1 - p_k, shape `(R, 1)`."""
        return self._probabilities[1]

    def total(self) -> Tensor:
        on_top = torch.arange(self.f.shape[-1], device=self.f.device) == self.top
        # Masking the top entry keeps its exact zero out of the derivatives, where it would cancel against the rest.
        shifted = (self.f - self.f.gather(-1, self.top)).masked_fill(on_top, 0.0)
        log_norm = shifted.exp().masked_fill(on_top, 0.0).sum(-1).log1p()
        if self.labels is not None:
            linear = self.weight * shifted.gather(-1, self.labels[:, None]).squeeze(-1)
        else:
            assert self.soft is not None
            linear = (self.soft * shifted).sum(-1)
        # The largest logit is taken as the origin; where it is infinite there is none, and the loss is no number.
        origin = self.f.detach().gather(-1, self.top).squeeze(-1)
        return (self.weight * log_norm - linear + (origin - origin)).sum()

    @property
    def value(self) -> Tensor:
        step = max(1, _PIECE // max(1, self.f.shape[-1] * self.f.element_size()))
        if len(self.f) <= step:
            return super().value
        pieces = (self._rows(slice(start, start + step)).value for start in range(0, len(self.f), step))
        return torch.stack(list(pieces)).sum()

    def _rows(self, here: slice) -> SoftmaxLoss:
        labels, soft = (None if t is None else t[here] for t in (self.labels, self.soft))
        return SoftmaxLoss(self.f.detach()[here], self.count, self.weight[here], labels, soft)

    def _minus_targets(self, scale: Tensor, labels: Tensor) -> Tensor:
        """scale · (p - e_label), with the label's entry -(1 - p_label) taken from `rest` where the label is on top."""
        out = self.p * scale[:, None]
        label = labels[:, None]
        at_label = torch.where(label == self.top, self.rest, 1 - self.p.gather(-1, label))
        return out.scatter_(-1, label, -scale[:, None] * at_label)

    def output_gradient(self) -> Tensor:
        if self.labels is not None:
            return self._minus_targets(self.weight, self.labels)
        assert self.soft is not None
        total = self.weight[:, None]
        others = self.soft.scatter(-1, self.top, 0.0).sum(-1, keepdim=True)
        return (total * self.p - self.soft).scatter_(-1, self.top, others - total * self.rest)

    def curvature(self, u: Tensor) -> Tensor:
        # T (diag p - p pᵀ) u, after moving the origin of u to its entry on top: there p·u is a sum of small terms.
        moved = (u - u.gather(-1, self.top)).mul_(self.p)
        mean = moved.sum(-1, keepdim=True)
        return moved.addcmul_(self.p, mean, value=-1).mul_(self.weight[:, None])

    def held(self) -> tuple[Tensor, ...]:
        return self.p, self.top

    def columns(self) -> int:
        return self.f.shape[-1]

    def column(self, index: int) -> Tensor:
        labels = torch.full(self.p.shape[:1], index, device=self.p.device)
        return self._minus_targets(-(self.weight * self.p[:, index]).sqrt(), labels)

    def random_column(self, generator: torch.Generator) -> Tensor:
        # S = √T (diag √p - p √pᵀ), so S ε = √T (√p ∘ ε - p <√p, ε>), again from the top entry on.
        root = self.p.sqrt() * random_signs(self.p.shape, generator, self.p)
        mean = root.sum(-1, keepdim=True)
        top_root = root.gather(-1, self.top)
        at_top = top_root * self.rest - self.p.gather(-1, self.top) * root.scatter(-1, self.top, 0.0).sum(
            -1, keepdim=True
        )
        return (root - self.p * mean).scatter_(-1, self.top, at_top).mul_(self.weight.sqrt()[:, None])

    def sampled_output_gradient(self, draws: RowDraws) -> Tensor:
        uniform = draws.uniform(self.p.shape[0], 1).to(self.p.device)
        drawn = torch.searchsorted(self.p.double().cumsum(-1), uniform).squeeze(-1)
        return self._minus_targets(self.weight.sqrt(), drawn.clamp_(max=self.p.shape[-1] - 1))

    def example_output_gradient(self) -> Tensor:
        return self.output_gradient() / self.weight.clamp_min(torch.finfo(self.p.dtype).tiny).sqrt()[:, None]
