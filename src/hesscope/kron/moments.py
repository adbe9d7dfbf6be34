"""Sums over the data that the factors are made of, from one pass for any number of layers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..curvature import Hessian, Problem
from ..curvature.gradient_mode import differentiable
from ..linalg.checkpoint import Arrays, kept_in
from ..linalg.steps import Steps
from .chunks import ChunkedData
from .columns import unit_weights
from .curvature_choice import LayerCurvature
from .grams import GramSum

Folder = str | os.PathLike[str] | None
_GRAMS = ("expanded", "reduced", "inputs", "mean_inputs")


@dataclass
class Moments:
    """Expectations of one layer, in float64 (means over what the loss counts)."""

    expanded: Tensor  # E[(1/P) Σ_p M_pp], (m, m)
    reduced: Tensor  # E[(1/P) Σ_ts M_ts], (m, m)
    inputs: Tensor  # E[Σ_p x_p x_pᵀ], (n, n)
    mean_inputs: Tensor  # E[P x̄ x̄ᵀ] with x̄ the mean over positions, (n, n)
    mean: Tensor  # E[x̄], (n,)
    by_position: Tensor | None  # E[X], (P, n), where all examples have the same positions


@differentiable()
def gather_moments(problem: Problem, layers: Sequence[LayerCurvature], resume: Folder = None) -> list[Moments]:
    """One pass over the data: forward, one backward pass per class through all layers at once, and Gram matrices."""
    names = [(layer.layer.name, layer.curvature) for layer in layers]
    with kept_in(resume, Hessian(problem), "Kronecker factors", layers=names) as store:
        return _gather(problem, layers, Steps(store))


def _gather(problem: Problem, layers: Sequence[LayerCurvature], steps: Steps) -> list[Moments]:
    data = ChunkedData(problem, layers)
    sums = [_Sums(layer) for layer in layers]
    if steps.found:
        data.chunk_bytes = float(steps.found["chunk bytes"])
        for i, total in enumerate(sums):
            total.restore(steps.found, i)

    def state() -> Arrays:
        parts = (total.state(i) for i, total in enumerate(sums))
        return {name: array for part in parts for name, array in part.items()} | {"chunk bytes": data.chunk_bytes}

    by_factors = [total for layer, total in zip(layers, sums, strict=True) if layer.gauss_newton]
    for chunk in data.chunks(steps.done("chunks")):
        run = data.run(chunk)
        owners = data.owners(run)
        for columns in data.columns(run, owners):
            for total, column in zip(by_factors, columns, strict=True):
                total.add_column(column)
        for i, (layer, total) in enumerate(zip(layers, sums, strict=True)):
            if not layer.gauss_newton:
                total.add_dense(run.second_derivative(i))
            total.add_inputs(run.patches(i).squeeze(2), unit_weights(run, i, None if owners is None else owners[i]))
            total.settle()
        steps.made("chunks", state)
    steps.finish(state)
    return [total.finish(problem) for total in sums]


class _Sums:
    def __init__(self, layer: LayerCurvature) -> None:
        m, n = layer.layer.outputs, layer.layer.inputs
        self.m, self.several = m, False
        self.expanded, self.reduced, self.inputs, self.mean_inputs = GramSum(m), GramSum(m), GramSum(n), GramSum(n)
        self.dense = torch.zeros(2, m, m, dtype=torch.float64)
        self.mean = torch.zeros(n, dtype=torch.float64)
        self.by_position: dict[int, Tensor] = {}
        self.weight = 0.0

    def add_column(self, n: Tensor) -> None:
        """N N ᵀ of one column `(U, P, m)`."""
        positions = n.shape[1]
        self.expanded.add(n.reshape(-1, self.m), 1 / positions)
        if positions > 1:
            self.reduced.add(n.sum(1), 1 / positions)

    def add_dense(self, matrix: Tensor) -> None:
        positions = matrix.shape[-1] // self.m
        blocks = matrix.sum(0).double().cpu().view(positions, self.m, positions, self.m)
        self.dense[0] += torch.einsum("pmpk->mk", blocks) / positions
        self.dense[1] += blocks.sum((0, 2)) / positions

    def add_inputs(self, x: Tensor, weight: Tensor) -> None:
        """Inputs `(U, P, n)` with what each unit counts for."""
        positions, n = x.shape[1:]
        w = weight.to(x)
        root = x if bool((w == 1).all()) else x * w.sqrt()[:, None, None]
        self.inputs.add(root.reshape(-1, n))
        self.weight += float(weight.sum())
        where = torch.einsum("u,upn->pn", w, x).double().cpu()
        self.mean += where.mean(0)
        if positions > 1:
            self.several = True
            self.mean_inputs.add(root.mean(1), positions)
            self.by_position[positions] = self.by_position.get(positions, torch.zeros_like(where)) + where

    def settle(self) -> None:
        for total in (self.expanded, self.reduced, self.inputs, self.mean_inputs):
            total.settle()

    def state(self, number: int) -> Arrays:
        """The sums of layer `number` by name."""
        grams = {f"{number} {name}": getattr(self, name).upper().numpy() for name in _GRAMS}
        places = {f"{number} position {count}": where.numpy() for count, where in self.by_position.items()}
        rest = {"dense": self.dense.numpy(), "mean": self.mean.numpy(), "weight": np.array(self.weight)}
        return grams | places | {f"{number} {name}": value for name, value in rest.items()}

    def restore(self, state: Arrays, number: int) -> None:
        """Go on from `state`."""
        for name in _GRAMS:
            getattr(self, name).restore(torch.from_numpy(state[f"{number} {name}"]))
        self.dense, self.mean = (torch.from_numpy(state[f"{number} {name}"]) for name in ("dense", "mean"))
        self.weight = float(state[f"{number} weight"])
        places = [name for name in state if name.startswith(f"{number} position ")]
        self.by_position = {int(name.rsplit(" ", 1)[1]): torch.from_numpy(state[name]) for name in places}
        self.several = bool(places)

    def finish(self, problem: Problem) -> Moments:
        expanded, inputs = self.expanded.value() + self.dense[0], self.inputs.value()
        reduced = self.reduced.value() + self.dense[1] if self.several else expanded
        mean_inputs = self.mean_inputs.value() if self.several else inputs
        weight = torch.tensor(self.weight, dtype=torch.float64)
        if problem.distributed:
            several = (reduced, mean_inputs) if self.several else ()
            for part in (expanded, inputs, self.mean, weight, *several):
                part.copy_(problem.all_sum(part.to(problem.device)))
        same = len(self.by_position) == 1 and not problem.distributed
        return Moments(
            expanded * problem.scale,
            reduced * problem.scale,
            inputs / weight,
            mean_inputs / weight,
            self.mean / weight,
            next(iter(self.by_position.values())) / weight if same else None,
        )
