"""Who binds: the share of the largest eigenvector in each block, and the edge without that block."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ..curvature import Problem
from ..measure import Array
from ..operators.tensors import tensor_of
from ..partition import Grouping, Partition, as_partition
from ..results.spectra import Eigenpairs
from ..results.stability import Binding


def binding(problem: Problem, top: Eigenpairs, by: Grouping | Partition) -> Binding:
    """Shares and predictions from the leading eigenpairs of a `Preconditioned` operator, without further products.

    With the rates of a block scaled by s, the operator is S^(1/2) A S^(1/2) with S = 1 - (1 - s) on the block. Of A only
    Λ and V are known, so its largest eigenvalue is that of Λ^(1/2) Vᵀ S V Λ^(1/2), and at most λ_k more than that with
    Λ - λ_k: what is not known of A lies below λ_k.
    """
    partition = as_partition(by, problem)
    values = np.maximum(top.values, 0.0)
    grams = _grams(tensor_of(top.vectors), partition)
    name = by if isinstance(by, str) else "blocks"
    least = float(values.min())
    return Binding(
        name,
        partition.names,
        grams[:, 0, 0].copy(),
        _largest(values, grams, 0.0),
        np.minimum(least + _largest(values - least, grams, 0.0), values[0]),
        _largest(values, grams, 0.5),
        float(top.values[0]),
    )


def _grams(vectors: Tensor, partition: Partition) -> Array:
    """V_bᵀ V_b of every block b, in float64 two columns at a time."""
    labels = partition.labels.cpu().numpy()
    k = vectors.shape[1]
    out = np.empty((partition.count, k, k))
    for i in range(k):
        for j in range(i + 1):
            both = (vectors[:, i].double() * vectors[:, j]).cpu().numpy()
            out[:, i, j] = out[:, j, i] = np.bincount(labels, both, partition.count)
    return out


def _largest(values: Array, grams: Array, scale: float) -> Array:
    """The largest eigenvalue with the rates of each block in turn scaled."""
    root = np.sqrt(values)
    inside = np.eye(len(values)) - (1 - scale) * grams
    return np.asarray(np.linalg.eigvalsh(root[:, None] * inside * root)[:, -1])
