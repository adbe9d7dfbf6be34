"""Logit gradients per class and logit: whether they cluster by logit or by class (G.5)."""

from __future__ import annotations

import torch

from ..curvature import Problem
from ..curvature.losses.softmax import SoftmaxLoss
from ..errors import refuse
from ..results.kronecker import LogitGradients
from .chunks import ChunkedData
from .grams import GramSum
from .plan import plan_layer
from .tapped import Tapped


def logit_gradients(problem: Problem, layer: str) -> LogitGradients:
    """Γ_ij = E[Q G | y = i]_j and Δ_ij = Γ's analogue on the weight, for cross-entropy with class labels.

    One pass over the data with c backward passes; memory c² m n numbers for Δ. Wu et al. (2022), (269), (270).
    """
    problem.need_outputs("logit gradients")
    plan = plan_layer(problem, layer, "gauss_newton")
    if plan.flat or not plan.in_order:
        refuse("logit gradients need one label per example", f"{layer!r} over tokens", "Use a classifier.")
    pieces = ChunkedData(problem, [plan])
    sums: _Sums | None = None
    for chunk in pieces.chunks():
        tapped = pieces.tapped(chunk)
        sums = sums or _Sums(_labelled(tapped).f.shape[1], plan.layer.outputs, plan.layer.inputs)
        sums.add(tapped)
    assert sums is not None
    return sums.finish(layer)


class _Sums:
    def __init__(self, classes: int, m: int, n: int) -> None:
        self.gamma = torch.zeros(classes, classes, m, dtype=torch.float64)
        self.delta = torch.zeros(classes, classes, m * n, dtype=torch.float64)
        self.counts = torch.zeros(classes, dtype=torch.float64)
        self.hessian = GramSum(m)

    def add(self, tapped: Tapped) -> None:
        rows = _labelled(tapped)
        assert rows.labels is not None
        x = tapped.seen[0].patches(tapped.examples).squeeze(2)
        members = [torch.nonzero(rows.labels == i).squeeze(1) for i in range(len(self.counts))]
        self.counts += torch.tensor([len(m) for m in members])
        for j in range(len(self.counts)):
            (column,) = tapped.pull(rows.f, rows.column(j))
            self.hessian.add(column.sum(1))
            for i, mine in enumerate(members):
                part = column[mine]
                self.gamma[i, j] += part.sum((0, 1)).double().cpu()
                self.delta[i, j] += (part.flatten(0, 1).T @ x[mine].flatten(0, 1)).reshape(-1).double().cpu()
        self.hessian.settle()

    def finish(self, layer: str) -> LogitGradients:
        each, total = self.counts.clamp_min(1)[:, None, None], float(self.counts.sum())
        share = (self.counts / total).numpy()
        return LogitGradients(layer, self.gamma / each, self.delta / each, share, self.hessian.value() / total)


def _labelled(tapped: Tapped) -> SoftmaxLoss:
    rows = tapped.terms
    if not isinstance(rows, SoftmaxLoss) or rows.labels is None:
        refuse("logit gradients need cross-entropy with class labels", "another loss", "Use nn.CrossEntropyLoss().")
    return rows
