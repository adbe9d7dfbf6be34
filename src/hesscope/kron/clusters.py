"""Logit gradients per class and logit: whether they cluster by logit or by class (G.5)."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..curvature import Problem
from ..curvature.given_problem import need_one_process
from ..curvature.gradient_mode import differentiable
from ..curvature.losses.softmax import SoftmaxLoss
from ..errors import refuse
from ..results.kronecker import LogitGradients
from .chunked.chunk_run import ChunkRun
from .chunked.chunks import ChunkedData
from .chunked.grams import GramSum
from .curvature_choice import layer_curvature
from .layer_proof import factors_proven


@differentiable()
def logit_gradients(problem: Problem, layer: str) -> LogitGradients:
    """Γ_ij = E[Q G | y = i]_j and Δ_ij = Γ's analogue on the weight, for cross-entropy with class labels.

    One pass over the data with c backward passes; memory c² m n numbers for Δ. Wu et al. (2022), (269), (270).
    """
    need_one_process(problem, "logit gradients").need_outputs("logit gradients")
    how = layer_curvature(problem, layer, "gauss_newton")
    check = factors_proven(problem, [how])
    data = ChunkedData(problem, [how])
    sums: _Sums | None = None
    for chunk in data.chunks():
        run = data.run(chunk)
        sums = sums or _Sums(_labelled(run).f.shape[1], how.layer.outputs, how.layer.inputs)
        owners = data.owners(run)
        assert owners is not None
        if how.flat or not torch.equal(owners[0], torch.arange(run.shape(0)[0], device="cpu")):
            refuse("logit gradients need one label per example", f"{layer!r} over tokens", "Use a classifier.")
        sums.add(run)
    assert sums is not None
    return replace(sums.finish(layer), check=check)


class _Sums:
    def __init__(self, classes: int, m: int, n: int) -> None:
        self.gamma = torch.zeros(classes, classes, m, dtype=torch.float64, device="cpu")
        self.delta = torch.zeros(classes, classes, m * n, dtype=torch.float64, device="cpu")
        self.counts = torch.zeros(classes, dtype=torch.float64, device="cpu")
        self.hessian = GramSum(m)

    def add(self, run: ChunkRun) -> None:
        rows = _labelled(run)
        assert rows.labels is not None
        x = run.patches(0).squeeze(2)
        members = [torch.nonzero(rows.labels == i).squeeze(1) for i in range(len(self.counts))]
        self.counts += torch.tensor([len(m) for m in members], device="cpu")
        for j in range(len(self.counts)):
            (column,) = run.gradients(rows.column(j))
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


def _labelled(run: ChunkRun) -> SoftmaxLoss:
    rows = run.rows
    if not isinstance(rows, SoftmaxLoss) or rows.labels is None:
        refuse("logit gradients need cross-entropy with class labels", "another loss", "Use nn.CrossEntropyLoss().")
    return rows
