"""A growing sketch Y = A Ω = Q R with Z = A Q, and what leaving out one column of it means."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...measure import Array
from ...operators import Counted
from ...operators.columns import joined_columns
from ...operators.layout import Draw
from ...rng import Rng
from ..krylov.orthogonal import orthonormalise, project_out
from ..resuming.checkpoint import Arrays
from ..validation import multiply, require_symmetry


class Sketch:
    """Random columns Ω, their images Y = A Ω, an orthonormal basis Q of the images, and Z = A Q; A symmetric.

    `captured` once the images of random vectors add nothing new: Q then spans the range of A. Signs can agree wherever A
    has entries, so that theirs are dependent in a larger range; normal vectors have the last word.
    """

    def __init__(self, op: Counted, kind: Draw, rng: Rng) -> None:
        self.op, self.kind, self.rng = op, kind, rng
        empty = torch.zeros(op.layout.local_size, 0, dtype=op.dtype, device=op.device)
        self.omega, self.y, self.q, self.z = empty, empty, empty, empty
        self.r: Array = np.zeros((0, 0))
        self.h: Array = np.zeros((0, 0))
        self.captured = False

    @property
    def columns(self) -> int:
        return self.omega.shape[1]

    def grow(self, count: int) -> None:
        """Add `count` columns, for two products each."""
        layout, first = self.op.layout, self.columns
        draws = [draw(self.op, self.kind, self.rng, first + j) for j in range(count)]
        omega = joined_columns(draws)
        y = multiply(self.op, omega)
        scale = float(layout.norms(y).max())
        rest, above = project_out(layout, self.q, y)
        new, factor = orthonormalise(layout, rest, 100 * float(torch.finfo(y.dtype).eps) * scale, self.q)
        self.captured = new.shape[1] < count
        z = multiply(self.op, new) if new.shape[1] else new
        old_rank, rank = self.q.shape[1], self.q.shape[1] + new.shape[1]
        self.omega, self.y = joined_columns([self.omega, omega]), joined_columns([self.y, y])
        self.q, self.z = joined_columns([self.q, new]), joined_columns([self.z, z])
        self.r = np.block([[self.r, above], [np.zeros((rank - old_rank, first)), factor]])
        cross = layout.inner(self.q, z).cpu().numpy()
        self._check_symmetry(y, new, omega, z, scale)
        self._border(cross, old_rank)
        if self.captured and self.kind != "normal":
            self._complete(scale)

    def _border(self, cross: Array, old_rank: int) -> None:
        """H = QᵀZ with new columns QᵀA q."""
        corner = cross[old_rank:]
        self.h = np.block([[self.h, cross[:old_rank]], [cross[:old_rank].T, (corner + corner.T) / 2]])

    def _complete(self, scale: float) -> None:
        """Add to Q what images of normal vectors have outside of it, until one has nothing."""
        layout, eps = self.op.layout, 100 * float(torch.finfo(self.q.dtype).eps)
        for index in range(self.op.shape[0]):
            y = multiply(self.op, draw(self.op, "normal", self.rng.child("range"), index))
            scale = max(scale, float(layout.norms(y).max()))
            rest, _ = project_out(layout, self.q, y)
            new, _ = orthonormalise(layout, rest, eps * scale, self.q)
            if not new.shape[1]:
                return
            rank, z = self.q.shape[1], multiply(self.op, new)
            self.q, self.z = joined_columns([self.q, new]), joined_columns([self.z, z])
            self._border(layout.inner(self.q, z).cpu().numpy(), rank)

    def state(self) -> tuple[Arrays, dict[int, Tensor]]:
        """The small part of the state, and the columns by name; Ω is drawn again."""
        small = {"r": self.r, "h": self.h, "captured": self.captured, "columns": self.columns}
        kinds = ((0, self.y), (1, self.q), (2, self.z))
        return small, {3 * j + kind: block[:, j] for kind, block in kinds for j in range(block.shape[1])}

    def restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        """Continue from `state`."""
        self.r, self.h, self.captured = state["r"], state["h"], bool(state["captured"])
        draws = [draw(self.op, self.kind, self.rng, j) for j in range(int(state["columns"]))]
        self.omega = joined_columns(draws)
        blocks = [[vectors[name] for name in sorted(vectors) if name % 3 == kind] for kind in range(3)]
        self.y, self.q, self.z = (torch.stack(block).T.to(self.op.device) for block in blocks)

    def overlaps(self) -> Array:
        """Qᵀ Ω."""
        return np.asarray(self.op.layout.inner(self.q, self.omega).cpu().numpy())

    def _check_symmetry(self, y: Tensor, new: Tensor, omega: Tensor, z: Tensor, scale: float) -> None:
        """ωᵀ(A q) = qᵀ(A ω) for the new columns."""
        gap = self.op.layout.inner(new, y) - self.op.layout.inner(omega, z).T
        require_symmetry(self.op, float(gap.abs().max()) if gap.numel() else 0.0, scale)


def left_out(r: Array) -> Array:
    """Unit vectors sᵢ, as columns: I − sᵢ sᵢᵀ projects onto the span of all columns of R but the i-th."""
    s = np.linalg.inv(r).T
    return np.asarray(s / np.linalg.norm(s, axis=0))


def draw(op: Counted, kind: Draw, rng: Rng, index: int) -> Tensor:
    """Random column `index`: ±1 entries, or uniform on the sphere of radius √n."""
    column = op.layout.draw(rng.child(index), 1, kind, op.dtype, op.device)
    if kind == "normal":
        column = column * (np.sqrt(op.shape[1]) / float(op.layout.norms(column)))
    return column
