"""Logit gradients per class and logit: whether they cluster by logit or by class (G.5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..curvature import Problem
from ..curvature.losses.softmax import SoftmaxLoss
from ..errors import HesscopeError, refuse
from ..measure import Array
from ..result import Result
from ..rng import Rng
from .chunks import ChunkedData
from .grams import GramSum
from .plan import plan_layer
from .tap import Tapped


@dataclass(frozen=True, eq=False)
class LogitGradients(Result):
    """Γ_ij = E[Gᵀ q_j | y = i] of shape `(c, c, m)` and Δ_ij = E[Gᵀ q_j ⊗ x | y = i] of shape `(c, c, m n)`.

    i is the class of the example, j the logit, q_j = √p_j (e_j - p). `share` holds the frequency of each class.
    `output_hessian` is E[M], of which the means explain Σ_i share_i Σ_j Γ_ij Γ_ijᵀ; the rest is the covariance within
    classes (the printed (271) lacks it, and a factor c).
    """

    layer: str
    gamma: Tensor
    delta: Tensor
    share: Array
    output_hessian: Tensor

    def explained(self) -> float:
        """The share of tr E[M] that the class means carry."""
        means = torch.einsum("i,ijm->", torch.as_tensor(self.share), self.gamma.square())
        return float(means / self.output_hessian.trace())

    def clustering(self, which: str = "gamma") -> tuple[float, float]:
        """(by logit, by class): the share of the variance of the c² vectors that lies between logits, or classes."""
        points = self.points(which)
        centre = points.mean((0, 1))
        total = float((points - centre).square().sum())
        classes = len(points)
        by_logit = float((points.mean(0) - centre).square().sum()) * classes / total
        by_class = float((points.mean(1) - centre).square().sum()) * classes / total
        return by_logit, by_class

    def points(self, which: str) -> Tensor:
        """Γ or Δ."""
        if which not in ("gamma", "delta"):
            refuse("which must be 'gamma' or 'delta'", f"{which!r}", "Gamma lives on outputs, delta on weights.")
        return self.gamma if which == "gamma" else self.delta

    def embedding(self, which: str = "gamma", rng: Rng | None = None) -> Array:
        """The c² vectors in the plane by t-SNE, `(c, c, 2)`; needs scikit-learn."""
        try:
            from sklearn.manifold import TSNE
        except ImportError as error:
            raise HesscopeError("t-SNE needs scikit-learn; it is not installed. pip install hesscope[extra]") from error
        points = self.points(which).flatten(0, 1)
        seed = (Rng(0) if rng is None else rng).child("t-sne").key % 2**31
        perplexity = min(10.0, (len(points) - 1) / 3)
        flat = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(points.numpy())
        classes = len(self.gamma)
        return np.asarray(flat, dtype=np.float64).reshape(classes, classes, 2)


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
