"""What one reading leaves to the next: a few vectors, and what the matrix did to them then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from ..linalg.krylov.basis import KrylovBasis
from ..measure import Array

if TYPE_CHECKING:
    from .tracking import Pencil

PLAIN, OTHER = 2, 4  # Ritz vectors of H and of the pencil that are kept
PARALLEL = 1e-3  # what is less new than this in a vector is left out
SWING = 0.7  # how much of the top vector before the last one goes into the next start


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Orthonormal `vectors` S, SᵀHS as it was (`matrix`), and the top vector of the reading before (`earlier`).

    H moves between readings, P too, and P is known without a product: the top of the pencil is looked for in S with the P
    of now. A direction that was the top only because no gradient had reached it is then left at once. At the edge of
    stability H swings from reading to reading, and the middle of two top vectors is nearer to the next than the last.
    """

    vectors: Tensor
    matrix: Array
    earlier: Tensor | None = None

    @property
    def size(self) -> int:
        """The length of the vectors."""
        return int(self.vectors.shape[0])

    def to(self, like: Tensor) -> WarmStart:
        """The same with the type and device of `like`."""
        earlier = None if self.earlier is None else self.earlier.to(like)
        return replace(self, vectors=self.vectors.to(like), earlier=earlier)

    def start(self, pencil: Pencil | None) -> Tensor:
        """What to multiply first: the top vector of H, and that of the pencil."""
        top = self._combined(np.linalg.eigh(self.matrix)[1][:, -1])
        found = [top if self.earlier is None else top + SWING * torch.sign(top @ self.earlier) * self.earlier]
        if pencil is not None:
            matrix, metric = pencil.on(self.vectors, self.matrix)
            found.append(self._combined(scipy.linalg.eigh(matrix, metric)[1][:, -1]))
        return torch.stack([vector / torch.linalg.vector_norm(vector) for vector in found]).T

    @classmethod
    def of(cls, basis: KrylovBasis, pencil: Pencil | None, before: WarmStart | None) -> WarmStart:
        """From the space of a reading: its leading Ritz vectors."""
        _, plain, _ = basis.ritz()
        chosen = [plain[:, ::-1][:, :PLAIN]]
        if pencil is not None:
            matrix, metric = pencil.on(basis.columns(0, basis.size), basis.T)
            chosen.append(scipy.linalg.eigh(matrix, metric)[1][:, ::-1][:, :OTHER])
        mixes = np.concatenate(chosen, axis=1)
        mix, factor = np.linalg.qr(mixes / np.linalg.norm(mixes, axis=0))
        mix = mix[:, np.abs(np.diag(factor)) > PARALLEL]
        earlier = None if before is None else before._combined(np.linalg.eigh(before.matrix)[1][:, -1])
        return cls(basis.vectors(mix), mix.T @ basis.T @ mix, earlier)

    def _combined(self, mix: Array) -> Tensor:
        return self.vectors @ torch.as_tensor(mix, dtype=self.vectors.dtype, device=self.vectors.device)
