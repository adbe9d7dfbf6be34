"""The small exact solver: S ⊗ I + U C Uᵀ has a bulk read off from S and outliers from one small symmetric matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from ..measure import Array
from ..result import Result
from ._inputs import finite
from .products import Mode, Places, WeightProduct


@dataclass(frozen=True, eq=False)
class Coupled(Result):
    """H = ⊕_c S_c ⊗ I + U C Uᵀ: products (and free parameters) that one curvature matrix C = ∂²ℓ couples.

    C is ordered as the products' matrices A_c, each flattened row by row, then the free parameters.
    Cost: O(m (K + D)²) for the products, then one symmetric eigenproblem whose size does not depend on the width m.
    """

    name: str
    products: tuple[WeightProduct, ...]
    curvature: Array
    free: Places

    @cached_property
    def _layout(self) -> tuple[tuple[WeightProduct, Mode, slice, slice], ...]:
        """Each mode with its product, the product's rows in C and the mode's place in the reduced problem."""
        found, row, start = [], 0, 0
        for product in self.products:
            rows = slice(row, row + product.slope.size)
            row = rows.stop
            for mode in product.modes:
                columns = slice(start, start + mode.low_rank_part.shape[0])
                start = columns.stop
                found.append((product, mode, rows, columns))
        return tuple(found)

    @cached_property
    def _reduced(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of the reduced matrix diag(bulk values) + Pᵀ C P."""
        touched = self._layout[-1][3].stop if self._layout else 0
        size = touched + self.free.size
        parts = np.zeros((self.curvature.shape[0], size))
        shift = np.zeros(size)
        for _, mode, rows, columns in self._layout:
            parts[rows, columns] = mode.low_rank_part.reshape(mode.low_rank_part.shape[0], -1).T
            shift[columns] = mode.value
        parts[self.curvature.shape[0] - self.free.size :, touched:] = np.eye(self.free.size)
        reduced = parts.T @ self.curvature @ parts
        reduced[np.diag_indices(size)] += shift
        values, vectors = np.linalg.eigh((reduced + reduced.T) / 2)
        return values, vectors

    @property
    def outliers(self) -> Array:
        """The eigenvalues of the reduced matrix, ascending."""
        return self._reduced[0]

    def bulk(self) -> Iterator[tuple[float, int]]:
        """The eigenvalues of S, each with the number of width directions that the low-rank part cannot touch."""
        for product, mode, _, _ in self._layout:
            yield mode.value, product.width - mode.low_rank_part.shape[0]

    def trace(self) -> float:
        """tr H = tr(C UᵀU), without any eigenvalue."""
        row, total = 0, 0.0
        for product in self.products:
            rows = slice(row, row + product.slope.size)
            row = rows.stop
            total += float(np.sum(self.curvature[rows, rows] * product.gram()))
        return total + float(np.trace(self.curvature[row:, row:]))

    def add_hessian(self, hessian: Array) -> None:
        """hessian += this part of the dense Hessian, in place."""
        unit = np.zeros((hessian.shape[0], self.free.size))
        unit[self.free, np.arange(self.free.size)] = 1.0
        jacobian = np.concatenate([p.jacobian(hessian.shape[0]) for p in self.products] + [unit], axis=1)
        hessian += jacobian @ self.curvature @ jacobian.T
        for product in self.products:
            product.add_swap(hessian)

    def eigenvectors(self, size: int) -> tuple[list[Array], Array]:
        """Orthonormal columns (size, ·): one array for each item of `bulk()`, and one for `outliers`."""
        _, small = self._reduced
        outlier = np.zeros((size, small.shape[1]))
        outlier[self.free] = small[small.shape[0] - self.free.size :]
        bases = {id(product): product.width_basis() for product in self.products}
        bulk = []
        for product, mode, _, columns in self._layout:
            width = bases[id(product)]
            rank, kept = mode.basis.shape[0], mode.low_rank_part.shape[0]
            turned = width[:, :rank] @ mode.basis
            _embed(outlier, product, mode, turned[:, :kept] @ small[columns])
            rest = np.zeros((size, product.width - kept))
            _embed(rest, product, mode, np.concatenate([turned[:, kept:], width[:, rank:]], axis=1))
            bulk.append(rest)
        return bulk, outlier


def _embed(vectors: Array, product: WeightProduct, mode: Mode, of_width: Array) -> None:
    """vectors += direction ⊗ of_width at the product's places."""
    for share, row in zip(mode.direction, product.places, strict=True):
        vectors[row] += share * of_width


def couple(products: Sequence[WeightProduct], curvature: Array, free: Places | None = None) -> tuple[Coupled, ...]:
    """Split products into groups that the curvature matrix really couples, so that each is solved on its own."""
    places = np.zeros(0, dtype=np.int64) if free is None else np.asarray(free, dtype=np.int64)
    sizes = [p.slope.size for p in products] + [1] * places.size
    if not sizes:
        refuse("there must be at least one product or free parameter", "none", "Pass the products the loss sees.")
    curvature = finite("curvature", curvature, (2,))
    if curvature.shape != (sum(sizes), sum(sizes)):
        refuse(
            f"the curvature must be {sum(sizes)} x {sum(sizes)} (all products' entries, then the free parameters)",
            f"shape {curvature.shape}",
            "Order it as the products are, each flattened row by row.",
        )
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    edges = np.add.reduceat(np.add.reduceat(np.abs(curvature), starts[:-1], axis=0), starts[:-1], axis=1) > 0
    groups = []
    for members in _components(edges):
        rows = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in members])
        mine = tuple(products[i] for i in members if i < len(products))
        own_free = places[[i - len(products) for i in members if i >= len(products)]]
        name = " & ".join(p.name for p in mine[:3]) + (" & ..." if len(mine) > 3 else "") or "free parameters"
        groups.append(Coupled(name, mine, curvature[np.ix_(rows, rows)], own_free))
    return tuple(groups)


def _components(edges: NDArray[np.bool_]) -> Iterator[list[int]]:
    left = set(range(edges.shape[0]))
    while left:
        group, frontier = set[int](), {min(left)}
        while frontier:
            group |= frontier
            reached = set(np.flatnonzero(edges[sorted(frontier)].any(axis=0)).tolist())
            frontier = reached - group
        left -= group
        yield sorted(group)
