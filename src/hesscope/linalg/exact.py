"""Exact answers for small operators, from all n products."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import refuse
from ..measure import Array
from ..operators import Counted
from ..operators.finite import all_finite
from .validation import innermost, require_symmetry

# Up to this size all products cost no more than an iteration that has to earn its answer.
SMALL = 200


def is_small(op: Counted, limit: int | None = None, least: int = 0) -> bool:
    """Whether the whole matrix is the cheapest way, and within `limit` products."""
    n = op.shape[1]
    return n <= max(SMALL, least) and (limit is None or n <= limit)


def exact_matrix(op: Counted) -> Tensor:
    """The whole matrix in float64, in every process that shares its vectors."""
    # Through the counter, so that the cost is the same whether or not the operator happens to hold its matrix.
    matrix = op.unit_products(0, op.shape[1]).double()
    if not all_finite(matrix):
        refuse(
            f"products of {innermost(op)!r} must be finite", "NaN or infinity", "Check the loss at these parameters."
        )
    return matrix


def exact_symmetric(op: Counted) -> Tensor:
    """The whole matrix of a symmetric operator, made symmetric to the last bit."""
    matrix = exact_matrix(op)
    asymmetry = float(torch.linalg.matrix_norm(matrix - matrix.T)) / 2
    require_symmetry(op, asymmetry, float(torch.linalg.matrix_norm(matrix)))
    return (matrix + matrix.T) / 2


def exact_spectrum(op: Counted) -> tuple[Array, Tensor, Tensor]:
    """All eigenvalues (ascending) and eigenvectors of the whole matrix, and the matrix, in float64."""
    matrix = exact_symmetric(op)
    # Of one matrix, every machine may take other vectors.
    values, vectors = (op.layout.agreed(part) for part in torch.linalg.eigh(matrix))
    return values.cpu().numpy(), vectors, matrix
