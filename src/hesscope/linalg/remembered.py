"""A small matrix that remembers its products: n of them are all there is to know."""

from __future__ import annotations

import torch
from torch import Tensor

from ..operators import Counted
from .completion import MOST
from .validation import multiply


class Remembered(Counted):
    """The same symmetric operator; the part of a vector that lies in the span of earlier ones costs no product.

    An orthonormal basis of everything that was multiplied is kept with its images, in float64. A new vector is split into
    what the basis knows and the rest, and only the direction of the rest is multiplied. So no algorithm, however many
    steps it takes, spends more than n products.
    """

    def __init__(self, inner: Counted) -> None:
        super().__init__(inner)
        self.count = inner.count
        # Rows, in room for more: appending copies nothing.
        self._held = torch.zeros(2, 32, inner.layout.local_size, dtype=torch.float64, device=inner.device)
        self._known = 0

    @staticmethod
    def if_small(op: Counted, limit: int | None = None) -> Counted:
        """The operator that remembers, where the whole matrix is affordable; the operator itself elsewhere."""
        n = op.shape[1]
        small = n <= MOST and n == op.shape[0] and (limit is None or n <= limit)
        return Remembered(op) if small else op

    @property
    def basis(self) -> Tensor:
        """Orthonormal columns that were multiplied; the rows of this process."""
        return self._held[0, : self._known].T

    @property
    def images(self) -> Tensor:
        """What the matrix makes of them."""
        return self._held[1, : self._known].T

    @property
    def full(self) -> bool:
        """Whether the whole matrix is known."""
        return self._known >= self.shape[1]

    def fill(self) -> Tensor:
        """The images of a whole orthonormal basis, for as many products as are left."""
        if not self.full:
            whole, _ = torch.linalg.qr(self.layout.gather(self.basis), mode="complete")
            for part in torch.split(self.layout.agreed(whole)[self.layout.local, self._known :], 64, dim=1):
                self._learn(part)
        return self.images

    def state(self) -> dict[int, Tensor]:
        """What a run that goes on must remember: vectors by names that count down from −1."""
        return {-1 - 2 * j - kind: self._held[kind, j] for j in range(self._known) for kind in range(2)}

    def restore(self, vectors: dict[int, Tensor]) -> None:
        """Go on from a `state`; other names are left alone."""
        mine = [vectors[name] for name in sorted(vectors, reverse=True) if name < 0]
        if mine:
            self._known = len(mine) // 2
            self._held = (
                torch.stack(mine).view(-1, 2, self.layout.local_size).transpose(0, 1).contiguous().to(self.device)
            )

    def solution(self, damping: float, b: Tensor, floor: float) -> Tensor:
        """(A + damping · I)⁻¹ b of what is known whole, without directions whose curvature is at most `floor` roundings."""
        layout = self.layout
        whole = layout.gather(self.images) @ layout.gather(self.basis).T
        values, vectors = (layout.agreed(part) for part in torch.linalg.eigh((whole + whole.T) / 2))
        values = values + damping
        sure = values.abs() > floor * torch.finfo(self.dtype).eps * values.abs().max()
        inverse = torch.where(sure, 1 / torch.where(sure, values, 1.0), 0.0)
        rows = vectors[layout.local]
        found: Tensor = rows @ (inverse[:, None] * layout.inner(rows, b))
        return found.to(b.dtype)

    def afresh(self, vector: Tensor) -> Tensor:
        """A product of its own, which vouches for what is remembered; of what is known whole, the same as any other."""
        if self.full:
            return self.apply(vector)
        out = multiply(self.inner, vector)
        self._count()
        return out

    def _apply(self, block: Tensor) -> Tensor:
        asked, layout = block.double(), self.layout
        for column in asked.T[:, :, None] if not self.full else ():
            rest, size = column, float(layout.norms(column))
            for _ in range(2):  # twice is enough for orthogonality to rounding
                rest = rest - self.basis @ layout.inner(self.basis, rest)
            left = float(layout.norms(rest))
            # What rounding of the vectors themselves leaves is no direction.
            if left > 4 * torch.finfo(self.dtype).eps * size and not self.full:
                self._learn(rest / left)
        return (self.images @ layout.inner(self.basis, asked)).to(block.dtype)

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        return self._apply(block)  # symmetric, or nothing would be known of the adjoint

    def _learn(self, directions: Tensor) -> None:
        upto = self._known + directions.shape[1]
        if upto > self._held.shape[1]:
            more = min(max(upto, 2 * self._held.shape[1]), self.shape[1]) - self._held.shape[1]
            self._held = torch.cat([self._held, self._held.new_zeros(2, more, self._held.shape[2])], 1)
        self._held[1, self._known : upto] = multiply(self.inner, directions.to(self.dtype)).double().T
        self._held[0, self._known : upto] = directions.T
        self._known = upto
        self._count()

    def _count(self) -> None:
        assert isinstance(self.inner, Counted)
        self.count = self.inner.count
