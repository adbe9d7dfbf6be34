"""Sums over the data that the factors are made of, from one pass for any number of layers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...curvature import Hessian, Problem
from ...curvature.gradient_mode import differentiable
from ...errors import refuse
from ...linalg.resuming.checkpoint import Arrays, kept_in
from ...linalg.resuming.steps import Steps
from ...operators.finite import need_finite
from ...rng import Rng
from ..curvature_choice import LayerCurvature
from .chunks import ChunkedData
from .columns import unit_weights
from .grams import GramSum

Folder = str | os.PathLike[str] | None
_GRAMS = ("expanded", "other_expanded", "reduced", "other_reduced", "inputs", "mean_inputs")


@dataclass
class Moments:
    """Expectations of one layer, in float64 (means over what the loss counts)."""

    expanded: Tensor  # E[(1/P) Σ_p M_pp], (m, m)
    reduced: Tensor  # E[(1/P) Σ_ts M_ts], (m, m)
    inputs: Tensor  # E[Σ_p x_p x_pᵀ], (n, n)
    mean_inputs: Tensor  # E[P x̄ x̄ᵀ] with x̄ the mean over positions, (n, n)
    mean: Tensor  # E[x̄], (n,)
    by_position: Tensor | None  # E[X], (P, n), where all examples have the same positions
    stderr: float = 0.0  # of `expanded` in Frobenius norm, where it comes from random directions
    reduced_stderr: float = 0.0


@differentiable()
def gather_moments(
    problem: Problem, layers: Sequence[LayerCurvature], resume: Folder = None, rng: Rng | None = None
) -> list[Moments]:
    """One pass over the data: forward, one backward pass per class (or random direction) through all layers at once, and
    Gram matrices."""
    names = [(layer.layer.name, layer.curvature) for layer in layers]
    draws = Rng.of(rng).child("kron")
    drawn = str(draws) if any(layer.directions for layer in layers) else ""
    with kept_in(resume, Hessian(problem), "Kronecker factors", layers=names, drawn=drawn) as store:
        return _gather(problem, layers, Steps(store), draws)


def _gather(problem: Problem, layers: Sequence[LayerCurvature], steps: Steps, rng: Rng) -> list[Moments]:
    data = ChunkedData(problem, layers)
    sums = [_Sums(layer) for layer in layers]
    if steps.found:
        data.chunk_bytes = float(steps.found["chunk bytes"])
        for i, total in enumerate(sums):
            total.restore(steps.found, i)

    def state() -> Arrays:
        parts = (total.state(i) for i, total in enumerate(sums))
        return {name: array for part in parts for name, array in part.items()} | {"chunk bytes": data.chunk_bytes}

    by_factors = [
        total for layer, total in zip(layers, sums, strict=True) if layer.gauss_newton and not layer.directions
    ]
    done = steps.done("chunks")
    for number, chunk in enumerate(data.chunks(done), done):
        run = data.run(chunk)
        owners = data.owners(run)
        for columns in data.columns(run, owners):
            for total, column in zip(by_factors, columns, strict=True):
                total.add_column(column)
        for draw, drawn, columns in data.random_columns(run, number, rng):
            for i, column in zip(drawn, columns, strict=True):
                sums[i].add_column(column, draw)
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
        self.name, self.m, self.several, self.directions = layer.layer.name, m, False, layer.directions
        # Random directions in two halves, whose difference tells the error; factors that are exact fill the first.
        self.expanded, self.other_expanded, self.reduced, self.other_reduced = (GramSum(m) for _ in range(4))
        self.inputs, self.mean_inputs = GramSum(n), GramSum(n)
        self.dense = torch.zeros(2, m, m, dtype=torch.float64, device="cpu")
        self.mean = torch.zeros(n, dtype=torch.float64, device="cpu")
        self.by_position: dict[int, Tensor] = {}
        self.weight = 0.0

    def add_column(self, n: Tensor, draw: int = 0) -> None:
        """N Nᵀ of one column `(U, P, m)`, or of a random direction."""
        half, positions = draw % 2, n.shape[1]
        scale = 1 / positions / (len(range(half, self.directions, 2)) * 2 if self.directions else 1)
        (self.other_expanded if half else self.expanded).add(n.reshape(-1, self.m), scale)
        if positions > 1:
            (self.other_reduced if half else self.reduced).add(n.sum(1), scale)

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
        for name in _GRAMS:
            getattr(self, name).settle()

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
        inputs, (first, second) = self.inputs.value(), (self.expanded.value(), self.other_expanded.value())
        expanded, gap = first + second + self.dense[0], first - second
        reduced, reduced_gap = expanded, gap
        if self.several:
            first, second = self.reduced.value(), self.other_reduced.value()
            reduced, reduced_gap = first + second + self.dense[1], first - second
        mean_inputs = self.mean_inputs.value() if self.several else inputs
        weight = torch.tensor(self.weight, dtype=torch.float64, device="cpu")
        if problem.distributed:
            several = (reduced, mean_inputs, reduced_gap) if self.several else ()
            for part in (expanded, inputs, self.mean, weight, gap, *several):
                part.copy_(problem.all_sum(part.to(problem.device)))
        errors = [float(torch.linalg.matrix_norm(t)) * problem.scale for t in (gap, reduced_gap)]
        for part in (expanded, reduced, inputs, mean_inputs):
            need_finite(part, "the factors of a layer")
        if not float(weight):
            refuse(
                "the loss must depend on a decoupled layer: E[x xᵀ] is over the inputs that it counts",
                f"no term of it that depends on {self.name!r} here, whose Hessian is zero",
                "Leave this layer out.",
            )
        same = len(self.by_position) == 1 and not problem.distributed
        return Moments(
            expanded * problem.scale,
            reduced * problem.scale,
            inputs / weight,
            mean_inputs / weight,
            self.mean / weight,
            next(iter(self.by_position.values())) / weight if same else None,
            *(errors if self.directions else ()),
        )
