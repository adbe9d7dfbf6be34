"""Subspaces and matricised eigenvectors: overlap, correspondence, and the top of a Kronecker product."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..arguments import is_count
from ..errors import refuse
from ..measure import Array
from ..operators.autocast import own_types
from ..operators.tensors import tensor_of
from .layer_operator import LayerHessian


@own_types()
def subspace_overlap(u: Tensor | np.ndarray[Any, Any], v: Tensor | np.ndarray[Any, Any]) -> float:
    """‖Uᵀ V‖_F² / k for orthonormal bases of two k-dimensional spaces (Definition 2.1); columns are made orthonormal.

    >>> subspace_overlap(torch.eye(3)[:, :2], torch.eye(3)[:, 1:])
    0.5
    """
    a, b = _as_basis(u), _as_basis(v)
    if a.shape != b.shape:
        refuse(
            "subspaces must have the same dimension in the same space",
            f"bases of shape {tuple(a.shape)} and {tuple(b.shape)}",
            "Cut the larger one, for example vectors[:, :k].",
        )
    return float(torch.linalg.matrix_norm(a.T @ b) ** 2 / a.shape[1])


@own_types()
def nested_overlaps(u: Tensor, v: Tensor) -> Array:
    """Overlap of the first j columns of two orthonormal bases, for every j up to k."""
    square = (u.double().T @ v.double()).square()
    corner = square.cumsum(0).cumsum(1).diagonal()
    return np.asarray(corner.cpu() / torch.arange(1, len(corner) + 1, device="cpu"))


@own_types()
def matricize(h: Tensor | Array, layer: LayerHessian | nn.Module | tuple[int, int]) -> Tensor:
    """Mat(h) of shape `(m, n)`, row-major as torch's weights: entry (i, j) is h[(i-1) n + j] (Definition 2.2, corrected).

    `h` may be `(mn,)` or `(mn, k)` (then `(k, m, n)` comes back). `layer`: the operator of `layer_hessian`, a module
    with a weight, or (m, n).
    """
    h = tensor_of(h)
    if isinstance(layer, nn.Module):
        weight = getattr(layer, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim < 2:
            refuse("the layer must have a weight matrix", f"a {type(layer).__name__}", "Pass (m, n).")
        layer = (weight.shape[0], weight[0].numel())
    if not isinstance(layer, LayerHessian) and not (isinstance(layer, tuple | list) and len(layer) == 2):
        refuse("the layer must be an operator, a module or (m, n)", f"{layer!r}", "Pass the shape of the weight.")
    m, n = (layer.layer.outputs, layer.layer.inputs) if isinstance(layer, LayerHessian) else layer
    if h.ndim not in (1, 2) or h.shape[0] != m * n:
        refuse(f"a vector over a {m} x {n} weight must have {m * n} entries", f"{tuple(h.shape)}", "Check the layer.")
    return h.reshape(m, n) if h.ndim == 1 else h.T.reshape(-1, m, n)


@own_types()
def correspondence(vectors: Tensor | Array, basis: Tensor | Array, *, side: str = "auto") -> Tensor:
    """Corr(b_i, h_j) = ‖Mat(h_j) b_i‖² (inputs) or ‖Mat(h_j)ᵀ b_i‖² (outputs), shape `(basis, vectors)` (Definition F.1).

    `vectors`: eigenvectors `(mn, k)` of a layer's Hessian; `basis`: columns, eigenvectors of E[x xᵀ] (side="inputs") or
    of E[M] (side="outputs"); `(k, m, n)` stacks from `matricize` fit too. For orthonormal full bases columns sum to 1.
    """
    vectors, basis = tensor_of(vectors), tensor_of(basis)
    if vectors.ndim not in (2, 3) or basis.ndim != 2:
        refuse(
            "vectors must be columns or matrices, and the basis columns",
            f"vectors of {tuple(vectors.shape)}, basis of {tuple(basis.shape)}",
            "Pass vectors[:, None] for a single one.",
        )
    size = basis.shape[0]
    if side not in ("auto", "inputs", "outputs"):
        refuse("side must be 'inputs' or 'outputs'", f"{side!r}", "inputs goes with E[xxᵀ], outputs with E[M].")
    if vectors.ndim == 2:
        if side == "auto" or vectors.shape[0] % size:
            refuse(
                "flat eigenvectors need side='inputs' or side='outputs' and a basis that divides their length",
                f"vectors of shape {tuple(vectors.shape)}, basis of {tuple(basis.shape)}, side={side!r}",
                "Pass hs.matricize(vectors, ...) to be safe.",
            )
        other = vectors.shape[0] // size
        vectors = matricize(vectors, (other, size) if side == "inputs" else (size, other))
    if side == "auto":
        if vectors.shape[1] == vectors.shape[2]:
            refuse("a square layer needs side='inputs' or side='outputs'", "side='auto'", "Say which basis it is.")
        side = "inputs" if vectors.shape[2] == size else "outputs"
    if vectors.shape[2 if side == "inputs" else 1] != size:
        refuse(
            f"the basis must live on the layer's {side}",
            f"basis of {size} entries, matrices of {tuple(vectors.shape[1:])}",
            "Pass the eigenvectors of E[xxᵀ] for inputs, of E[M] for outputs.",
        )
    basis = basis.to(vectors)
    image = vectors @ basis if side == "inputs" else vectors.mT @ basis
    lengths: Tensor = torch.linalg.vector_norm(image, dim=1)
    return lengths.square().T


@own_types()
def top_of_kronecker(left: Tensor, right: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest eigenvalues of A ⊗ B, and vectors `(mn, k)`, from the eigenvectors of symmetric A and B."""
    check_k(k, left.shape[0] * right.shape[0])
    left_values, left_vectors = torch.linalg.eigh(left)
    right_values, right_vectors = torch.linalg.eigh(right)
    products = torch.outer(left_values, right_values).reshape(-1)
    order = torch.argsort(products, descending=True, stable=True)[:k]
    i, j = order // len(right_values), order % len(right_values)
    vectors = torch.einsum("mk,nk->mnk", left_vectors[:, i], right_vectors[:, j]).reshape(-1, k)
    return products[order], vectors


def check_k(k: int, size: int) -> None:
    """Refuse a number of eigenpairs that the space does not have."""
    if not is_count(k, 1) or k > size:
        refuse(f"k must lie between 1 and the {size} dimensions of the space", f"k={k!r}", "Ask for fewer eigenpairs.")


def _as_basis(u: Tensor | np.ndarray[Any, Any]) -> Tensor:
    if not isinstance(u, Tensor | np.ndarray):
        refuse("a basis must be a tensor or an array", type(u).__name__, "Pass the .vectors of a result.")
    if isinstance(u, np.ndarray) and u.dtype.kind not in "biufc":
        refuse("a basis must hold numbers", f"dtype {u.dtype}", "Pass the .vectors of a result.")
    given = tensor_of(u)
    if given.is_complex():
        refuse("a basis must be real", f"{given.dtype}", "Pass its real and imaginary part as columns.")
    t = given.detach().double()
    if not bool(torch.isfinite(t).all()):
        refuse("a basis must be finite", "NaN or infinity", "Check where it comes from.")
    if t.ndim != 2 or t.shape[1] > t.shape[0] or t.shape[1] < 1:
        refuse("a subspace needs a basis of shape (d, k) with 1 <= k <= d", f"{tuple(t.shape)}", "Columns span it.")
    q: Tensor
    q, r = torch.linalg.qr(t)
    size = r.diagonal().abs()
    if not bool(size.min() > 1e-10 * size.max()):
        refuse("the columns of a basis must be independent", f"rank below {t.shape[1]}", "Drop the dependent columns.")
    return q
