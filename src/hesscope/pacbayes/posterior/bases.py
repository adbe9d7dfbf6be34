"""Orthonormal bases in which the posterior is diagonal: the standard one, or Kronecker eigenbases layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...curvature import Problem
from ...curvature.losses.softmax import SoftmaxLoss
from ...errors import refuse
from ...kron import decouple_layers, predicted_output_eigenspace
from ...kron.curvature_choice import matrix_layers
from ...layers import LayerFacts, capture
from ...layers.kinds.linear import InputMajorLinear


@dataclass(frozen=True, eq=False)
class Basis:
    """W = U A Vᵀ for one parameter; None stands for the identity. Eigenvalues are those of E[M] and E[x xᵀ]."""

    rows: Tensor | None = None
    columns: Tensor | None = None
    row_values: Tensor | None = None
    column_values: Tensor | None = None

    def into(self, weight: Tensor) -> Tensor:
        """A = Uᵀ W V, with a convolution's weight as a matrix."""
        if self.rows is None:
            return weight.clone()
        if self.columns is None:
            return self.rows.T @ weight
        return self.rows.T @ weight.flatten(1) @ self.columns

    def back(self, coordinates: Tensor, shape: tuple[int, ...]) -> Tensor:
        """W = U A Vᵀ in the parameter's own shape."""
        if self.rows is None:
            return coordinates.reshape(shape)
        turned = self.rows @ coordinates
        return (turned if self.columns is None else turned @ self.columns.T).reshape(shape)

    @property
    def curvature(self) -> Tensor | None:
        """Eigenvalues of E[M] ⊗ E[x xᵀ] (of E[M] for a bias), shaped as the coordinates."""
        if self.row_values is None:
            return None
        return self.row_values if self.column_values is None else torch.outer(self.row_values, self.column_values)

    def carry_precision(self, precision: Tensor, new: Basis) -> Tensor:
        """diag of the precision matrix in another basis: the nearest diagonal posterior from inside, which never
        spreads noise into a direction that the old one kept quiet."""
        rows = _squared_overlap(new.rows, self.rows)
        columns = _squared_overlap(new.columns, self.columns)
        matrix = precision.flatten(1) if new.columns is not None else precision
        matrix = matrix if rows is None else rows @ matrix
        return matrix if columns is None else matrix @ columns.T


def _squared_overlap(new: Tensor | None, old: Tensor | None) -> Tensor | None:
    if new is None:
        return None if old is None else old.square()
    return (new.T if old is None else new.T @ old).square()


def kronecker_layers(problem: Problem) -> list[LayerFacts]:
    """Layers whose weight is a selected parameter of their own and multiplies one input."""
    return [layer for layer in matrix_layers(problem) if layer.weight in problem.parameters]


def standard_bases(problem: Problem) -> dict[str, Basis]:
    """The identity for every parameter."""
    return {name: Basis() for name in problem.parameters}


def kronecker_bases(problem: Problem) -> dict[str, Basis]:
    """U from E[M] (Gauss-Newton) and V from E[x xᵀ]; a bias uses U alone, other parameters the standard basis."""
    layers = kronecker_layers(problem)
    if not layers:
        refuse("a Hessian eigenbasis needs a linear or convolutional layer", "none", "Use method='base'.")
    found = decouple_layers(problem, [layer.name for layer in layers], curvature="gauss_newton")
    bases = standard_bases(problem)
    for layer in layers:
        d = found[layer.name]
        _place(bases, problem, layer, d.output_hessian, d.input_autocorrelation)
    return bases


def predicted_bases(problem: Problem) -> dict[str, Basis]:
    """As `kronecker_bases`, with E[M] ≈ S_πᵀ E[A] S_π from weights and activation frequencies: no backward pass per
    class. For chains of Linear layers (Wu et al., (272), with measured frequencies)."""
    layers = kronecker_layers(problem)
    inputs, output = _forward_moments(problem, layers)
    bases = standard_bases(problem)
    for layer in layers:
        to_logits = predicted_output_eigenspace(problem, layer.name).logit_map
        _place(bases, problem, layer, to_logits.T @ output @ to_logits, inputs[layer.name])
    return bases


def _forward_moments(problem: Problem, layers: list[LayerFacts]) -> tuple[dict[str, Tensor], Tensor]:
    """E[x xᵀ] of every layer and E[A], A = diag(p) - p pᵀ, by forward passes."""
    inputs = {
        layer.name: torch.zeros(layer.inputs, layer.inputs, dtype=torch.float64, device="cpu") for layer in layers
    }
    output: Tensor | None = None
    count = 0
    for batch in problem.batches:
        run = capture(problem, batch, set(inputs))
        rows = run.terms
        assert isinstance(rows, SoftmaxLoss)
        p = rows.p.double()
        curved = torch.diag(p.sum(0)) - p.T @ p
        output = curved if output is None else output + curved
        count += len(p)
        for layer in layers:
            (seen,) = run.of(layer.name)
            x = layer.patches(seen).flatten(0, -2)
            inputs[layer.name] += (x.T @ x).double().cpu()
    assert output is not None
    return {name: total / count for name, total in inputs.items()}, output.cpu() / count


def _place(bases: dict[str, Basis], problem: Problem, layer: LayerFacts, output: Tensor, inputs: Tensor) -> None:
    row_values, rows = _descending(output, problem)
    column_values, columns = _descending(inputs, problem)
    assert layer.weight is not None
    weight = Basis(rows, columns, row_values, column_values)
    stored_turned = isinstance(layer.kind, InputMajorLinear)
    bases[layer.weight] = Basis(columns, rows, column_values, row_values) if stored_turned else weight
    if layer.bias is not None and layer.bias in problem.parameters:
        bases[layer.bias] = Basis(rows, None, row_values, None)


def _descending(matrix: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(matrix.double())
    like = next(iter(problem.parameters.values()))
    return values.flip(0).clamp_min(0.0).to(like), vectors.flip(1).contiguous().to(like)
