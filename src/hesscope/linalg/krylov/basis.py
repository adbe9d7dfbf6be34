"""The one relation behind every Krylov method here: H V = V T + P C, with [V P] orthonormal."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...measure import Array
from ...operators import Counted
from ..validation import multiply, require_symmetry
from .orthogonal import orthonormalise, project_out
from .room import mix_rows


class KrylovBasis:
    """A basis V that H has been applied to, and pending directions P that it has not.

    Lanczos, block Lanczos, warm starts, thick restarts and random probes differ only in which pending direction is
    taken next. The residual of a Ritz vector V y is P C y, so it is known without a product.
    Vectors are rows of one growing buffer: the first `size` are V, the next `pending` are P.
    """

    def __init__(self, op: Counted, expected: int = 16, room: Tensor | None = None) -> None:
        """`expected` vectors have their place from the start, in `room` if it is given: while a buffer grows, it is there
        twice."""
        self.op, self.layout, self.expected = op, op.layout, expected
        empty = torch.empty(0, self.layout.local_size, dtype=op.dtype, device=op.device)
        self.rows = empty if room is None else room
        self.names: list[int] = []
        self.next_name = 0
        self.size = 0
        self.T: Array = np.zeros((0, 0))
        self.C: Array = np.zeros((0, 0))
        self.noise = 0.0
        self.scale = 0.0
        self._ritz: tuple[Array, Array, Array] | None = None

    @property
    def pending(self) -> int:
        return len(self.names) - self.size

    def columns(self, start: int, stop: int) -> Tensor:
        """Vectors `start` to `stop` as an `(n, stop - start)` view."""
        return self.rows[start:stop].T

    def append(self, block: Tensor) -> Array:
        """Add what is new in `block` as pending directions; the coordinates of its (normalised) columns in P."""
        known = self.columns(0, len(self.names))
        lengths = self.layout.norms(block)
        # Columns are normalised first, so the threshold is relative to what was offered.
        unit = block / torch.where(lengths > 0, lengths, 1.0).to(block.dtype)
        rest, h = project_out(self.layout, known, unit)
        new, factor = orthonormalise(self.layout, rest, 100 * float(torch.finfo(block.dtype).eps), known, use_up=True)
        self._store(new)
        self.C = np.vstack([self.C, np.zeros((new.shape[1], self.size))])
        return np.vstack([h[self.size :], factor])

    def lead(self, directions: Array) -> None:
        """Rotate P so that its combinations `directions`, `(pending, b)`, come first; P only matters as a space."""
        rotation = np.linalg.qr(directions, mode="complete")[0].T
        self._replace(rotation)
        self.C = rotation @ self.C
        self._ritz = None

    def process(self, count: int) -> None:
        """Apply H to the first `count` pending directions and move them into V."""
        m, b = self.size, min(count, self.pending)
        known = self.columns(0, len(self.names))
        image = multiply(self.op, self.columns(m, m + b))
        rest, h = project_out(self.layout, known, image)
        self.noise = max(self.noise, float(np.linalg.norm(h[:m] - self.C[:b].T)) if m else 0.0)
        corner = h[m : m + b]
        self.noise = max(self.noise, float(np.linalg.norm(corner - corner.T)) / 2)
        coupling = (h[:m] + self.C[:b].T) / 2
        self.T = np.block([[self.T, coupling], [coupling.T, (corner + corner.T) / 2]])
        self.scale = max(self.scale, float(self.layout.norms(image).max()))
        require_symmetry(self.op, self.noise, self.scale)
        drop = 10 * float(torch.finfo(image.dtype).eps) * self.scale
        new, factor = orthonormalise(self.layout, rest, drop, known, use_up=True)
        self.C = np.vstack(
            [np.hstack([self.C[b:], h[m + b :]]), np.hstack([np.zeros((new.shape[1], m)), factor])],
        )
        self._store(new)
        self.size += b
        self._ritz = None

    def ritz(self) -> tuple[Array, Array, Array]:
        """Ritz values (ascending), their coordinates in V, and residual norms."""
        if self._ritz is None:
            values, y = np.linalg.eigh(self.T)
            self._ritz = values, y, np.linalg.norm(self.C @ y, axis=0)
        return self._ritz

    def vectors(self, y: Array) -> Tensor:
        """V y for coordinates `y` of shape `(size, k)`."""
        weights = torch.as_tensor(y, dtype=self.rows.dtype, device=self.rows.device)
        return (weights.T @ self.rows[: self.size]).T

    def restart(self, y: Array) -> None:
        """Keep only the combinations V y, with orthonormal columns `y`, that span an (almost) invariant part of T."""
        p, keep = self.pending, y.shape[1]
        tail = self.rows[self.size : len(self.names)].clone()
        mix_rows(self.rows[: self.size], y.T)
        self.rows[keep : keep + p] = tail
        self.names = [*self._fresh(keep), *self.names[self.size :]]
        self.size, self.T, self.C = keep, y.T @ self.T @ y, self.C @ y
        self._ritz = None

    def state(self) -> dict[str, Any]:
        """The small part of the state; the vectors are `rows[:len(names)]`."""
        return {
            "T": self.T,
            "C": self.C,
            "size": self.size,
            "next_name": self.next_name,
            "noise": self.noise,
            "scale": self.scale,
        }

    def restore(self, state: dict[str, Any], vectors: dict[int, Tensor]) -> None:
        """Continue from `state`."""
        names = [int(name) for name in state["names"]]
        for name in names:
            self._store(vectors[name][:, None].to(self.rows.device))
        self.names = names
        self.T, self.C, self.size = state["T"], state["C"], int(state["size"])
        self.next_name, self.noise, self.scale = int(state["next_name"]), float(state["noise"]), float(state["scale"])
        self._ritz = None

    def _store(self, new: Tensor) -> None:
        used, needed = len(self.names), len(self.names) + new.shape[1]
        if needed > self.rows.shape[0]:
            grown = self.rows.new_empty(max(needed, self.expected, self.rows.shape[0] * 3 // 2), self.rows.shape[1])
            grown[:used] = self.rows[:used]
            self.rows = grown
        self.rows[used:needed] = new.T
        self.names += self._fresh(new.shape[1])

    def _replace(self, mix: Array) -> None:
        start, stop = self.size, len(self.names)
        weights = torch.as_tensor(mix, dtype=self.rows.dtype, device=self.rows.device)
        self.rows[start:stop] = weights @ self.rows[start:stop]
        self.names[start:stop] = self._fresh(stop - start)

    def _fresh(self, count: int) -> list[int]:
        self.next_name += count
        return list(range(self.next_name - count, self.next_name))
