"""An exact spectrum with its structure: bulk values with multiplicities, and outliers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf, prod

import numpy as np

from ..errors import refuse
from ..measure import Array, AtomicMeasure
from ..result import Result
from .coupled import Coupled
from .products import Places

LARGEST_DENSE = 20_000


@dataclass(frozen=True)
class Bulk(Result):
    """One repeated eigenvalue: how often it occurs, and which part of the network it belongs to."""

    value: float
    multiplicity: int
    source: str


@dataclass(frozen=True, eq=False)
class ClosedFormSpectrum(Result):
    """All eigenvalues (and on request all eigenvectors) of a loss Hessian, in closed form.

    The Hessian is a direct sum of `parts`, each S ⊗ I + U C Uᵀ. Eigenvalues, trace and structure cost O(width);
    `eigenvectors()` and `hessian()` are dense, (n, n) numbers for n parameters, and are meant for small networks.
    `parameter_order` names the tensors in the order of the flat parameter vector, each flattened row by row.
    """

    model: str
    parts: tuple[Coupled, ...]
    parameter_order: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(prod(shape) for _, shape in self.parameter_order)

    @cached_property
    def _entries(self) -> tuple[Array, Places, tuple[str, ...], Places]:
        """Value, multiplicity, source, and (0 bulk, 1 outlier), in the order in which parts give their eigenvectors."""
        rows: list[tuple[float, int, str, int]] = []
        for part in self.parts:
            rows += [(value, count, part.name, 0) for value, count in part.bulk()]
            rows += [(value, 1, part.name, 1) for value in part.outliers.tolist()]
        values, counts, sources, kinds = zip(*rows, strict=True)
        return np.array(values), np.array(counts), sources, np.array(kinds)

    @property
    def eigenvalues(self) -> Array:
        """Ascending, repeated with their multiplicities: (n,)."""
        values, counts, _, _ = self._entries
        order = np.argsort(values, kind="stable")
        return np.repeat(values[order], counts[order])

    @property
    def bulk(self) -> tuple[Bulk, ...]:
        """The repeated eigenvalues, ascending."""
        values, counts, sources, kinds = self._entries
        order = [i for i in np.argsort(values, kind="stable") if kinds[i] == 0 and counts[i] > 0]
        return tuple(Bulk(float(values[i]), int(counts[i]), sources[i]) for i in order)

    @property
    def outliers(self) -> Array:
        """The eigenvalues of the reduced problems, ascending (some may coincide with bulk values)."""
        values, _, _, kinds = self._entries
        return np.sort(values[kinds == 1])

    @property
    def outlier_sources(self) -> tuple[str, ...]:
        """The part of the network behind each of `outliers`."""
        values, _, sources, kinds = self._entries
        return tuple(sources[i] for i in np.argsort(values, kind="stable") if kinds[i] == 1)

    @property
    def sharpness(self) -> float:
        """λ_max."""
        values, counts, _, _ = self._entries
        return float(values[counts > 0].max())

    @cached_property
    def trace(self) -> float:
        """tr H, from the structure and not from the eigenvalues."""
        return sum(part.trace() for part in self.parts)

    @property
    def condition_number(self) -> float:
        """max |λ| / min |λ|; infinite when the Hessian is singular to working precision."""
        values, counts, _, kinds = self._entries
        sizes = np.abs(values[counts > 0])
        rounding = 4.0 * np.finfo(float).eps * max(1, int(kinds.sum())) * sizes.max()
        return inf if sizes.min() <= rounding else float(sizes.max() / sizes.min())

    def measure(self) -> AtomicMeasure:
        """The spectrum as a probability measure, one atom for each entry of bulk and outliers."""
        values, counts, _, _ = self._entries
        return AtomicMeasure.of(values, counts)

    def eigenvectors(self) -> Array:
        """Orthonormal columns in the order of `eigenvalues`: (n, n)."""
        self._refuse_when_huge("eigenvectors")
        values = self._entries[0]
        columns: list[Array] = []
        for part in self.parts:
            bulk, outlier = part.eigenvectors(self.size)
            columns += bulk + list(outlier.T[:, :, None])
        return np.concatenate([columns[i] for i in np.argsort(values, kind="stable")], axis=1)

    def hessian(self) -> Array:
        """The dense Hessian (n, n), assembled from the structure."""
        self._refuse_when_huge("hessian")
        dense = np.zeros((self.size, self.size))
        for part in self.parts:
            part.add_hessian(dense)
        return dense

    def _refuse_when_huge(self, what: str) -> None:
        if self.size > LARGEST_DENSE:
            refuse(
                f"{what}() is dense and needs at most {LARGEST_DENSE} parameters",
                f"{self.size}",
                "Eigenvalues, bulk, outliers and trace have no such limit.",
            )

    def explain(self) -> str:
        """The spectrum in words: where each bulk value and each outlier comes from."""
        order = ", ".join(f"{name}{list(shape)}" for name, shape in self.parameter_order[:8])
        more = ", ..." if len(self.parameter_order) > 8 else ""
        lines = [f"{self.model}: {self.size} parameters, ordered ({order}{more})."]
        lines.append("The Hessian is (swap matrix of the slopes) ⊗ identity + low rank.")
        for entry in self.bulk[:12]:
            lines.append(f"  bulk    {entry.value:+.6g} x {entry.multiplicity}  [{entry.source}]")
        pairs = list(zip(self.outliers.tolist(), self.outlier_sources, strict=True))
        shown = pairs if len(pairs) <= 12 else pairs[:6] + pairs[-6:]
        lines += [f"  outlier {value:+.6g}  [{source}]" for value, source in shown]
        if len(self.bulk) > 12 or len(pairs) > 12:
            lines.append(f"  in all {len(self.bulk)} bulk values and {len(pairs)} outliers.")
        lines.append(
            f"Trace {self.trace:.6g}, sharpness {self.sharpness:.6g}, condition number {self.condition_number:.3g}."
        )
        return "\n".join(lines)
