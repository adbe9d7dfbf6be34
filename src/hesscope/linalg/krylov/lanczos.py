"""One Lanczos chain: H Q = Q T + β q eᵀ with T tridiagonal."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...measure import Array
from ...operators import LinearOperator
from ..validation import multiply, require_symmetry
from .orthogonal import project_out


class Lanczos:
    """The recurrence from one start vector, orthogonal to the columns of `outside`.

    With `full`, all vectors are kept and every new one is orthogonalised against all of them twice. Without, only two
    are kept: T then repeats converged eigenvalues, which leaves its quadrature intact but not its eigenvectors.
    Vectors are rows of one buffer: first those of `outside`, then the chain's own. A `room` is such a buffer, with those of
    `outside` in their place.
    """

    def __init__(
        self, op: LinearOperator, start: Tensor, outside: Tensor, full: bool = True, room: Tensor | None = None
    ) -> None:
        self.op, self.layout, self.full = op, op.layout, full
        self.alpha: list[float] = []
        self.beta: list[float] = []
        self.names: list[int] = []
        self.ended = False
        self.scale = 0.0
        self._first = outside.shape[1]
        if room is None:
            self._buffer = torch.empty(self._first + 16, start.shape[0], dtype=op.dtype, device=op.device)
            self._buffer[: self._first] = outside.T
        else:
            self._buffer = room
        rest, _ = project_out(self.layout, outside, start)
        self._push(rest, float(self.layout.norms(rest)), float(self.layout.norms(start)))

    @property
    def steps(self) -> int:
        return len(self.alpha)

    @property
    def rows(self) -> Tensor:
        """The vectors of the chain that are kept, called `names`."""
        return self._buffer[self._first : self._first + len(self.names)]

    def step(self) -> None:
        """One product; `beta[-1]` then couples to the next vector (0 when the chain has ended)."""
        held = self._first + len(self.names)
        image = multiply(self.op, self._buffer[held - 1][:, None])
        self.scale = max(self.scale, float(self.layout.norms(image)))
        rest, h = project_out(self.layout, self._buffer[:held].T, image)
        self._check_symmetry(h[self._first :, 0])
        self.alpha.append(float(h[-1, 0]))
        beta = float(self.layout.norms(rest))
        self._push(rest, beta, self.scale)
        self.beta.append(0.0 if self.ended else beta)

    def _check_symmetry(self, h: Array) -> None:
        """A symmetric operator couples only to the last two vectors, and to the older of them by the last β."""
        expected = np.zeros(h.size - 1)
        expected[-1:] = self.beta[-1:]
        require_symmetry(self.op, float(np.linalg.norm(h[:-1] - expected)), self.scale)

    def _push(self, rest: Tensor, length: float, scale: float) -> None:
        self.ended = not length > 10 * float(torch.finfo(rest.dtype).eps) * scale
        if self.ended:
            return
        if not self.full and len(self.names) == 2:
            self._buffer[self._first] = self._buffer[self._first + 1]
            self.names.pop(0)
        held = self._first + len(self.names)
        if held == self._buffer.shape[0]:
            self._buffer = torch.cat([self._buffer, torch.empty_like(self._buffer)])
        self._buffer[held] = rest[:, 0] / length
        self.names.append(self.names[-1] + 1 if self.names else 0)

    def vectors(self, y: Array) -> Tensor:
        """Q y for coordinates `(steps, k)`; needs `full`."""
        rows = self.rows[: self.steps]
        return (torch.as_tensor(y, dtype=rows.dtype, device=rows.device).T @ rows).T

    def state(self) -> dict[str, Any]:
        """The small part of the state; the vectors are `rows`."""
        return {"alpha": np.array(self.alpha), "beta": np.array(self.beta), "ended": self.ended, "scale": self.scale}

    def restore(self, state: dict[str, Any], rows: dict[int, Tensor]) -> None:
        """Continue from `state`."""
        self.alpha, self.beta = state["alpha"].tolist(), state["beta"].tolist()
        self.ended, self.scale = bool(state["ended"]), float(state["scale"])
        self.names = sorted(rows)
        missing = self._first + len(rows) - self._buffer.shape[0]
        if missing > 0:
            self._buffer = torch.cat([self._buffer, self._buffer.new_empty(missing, self._buffer.shape[1])])
        for place, name in enumerate(self.names, self._first):
            self._buffer[place] = rows[name].to(self._buffer.device)
