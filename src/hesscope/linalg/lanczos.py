"""One Lanczos chain: H Q = Q T + β q eᵀ with T tridiagonal."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..measure import Array
from ..operators import LinearOperator
from .guards import multiply
from .orthogonal import project_out


class Lanczos:
    """The recurrence from one start vector, orthogonal to the columns of `outside`.

    With `full`, all vectors are kept and every new one is orthogonalised against all of them twice. Without, only two
    are kept: T then repeats converged eigenvalues, which leaves its quadrature intact but not its eigenvectors.
    """

    def __init__(self, op: LinearOperator, start: Tensor, outside: Tensor, full: bool = True) -> None:
        self.op, self.layout, self.full, self.outside = op, op.layout, full, outside
        self.alpha: list[float] = []
        self.beta: list[float] = []
        self.rows: list[Tensor] = []
        self.names: list[int] = []
        self.ended = False
        self.scale = 0.0
        rest, _ = project_out(self.layout, outside, start)
        self._push(rest, float(self.layout.norms(rest)), float(self.layout.norms(start)))

    @property
    def steps(self) -> int:
        return len(self.alpha)

    def step(self) -> None:
        """One product; `beta[-1]` then couples to the next vector (0 when the chain has ended)."""
        newest = self.rows[-1]
        image = multiply(self.op, newest[:, None])
        length = float(self.layout.norms(image))
        self.scale = max(self.scale, length)
        self.alpha.append(float(self.layout.inner(newest[:, None], image)))
        near = self.rows if self.full else self.rows[-2:]
        rest, _ = project_out(self.layout, torch.cat([self.outside, torch.stack(near, 1)], 1), image)
        beta = float(self.layout.norms(rest))
        self._push(rest, beta, self.scale)
        self.beta.append(0.0 if self.ended else beta)

    def _push(self, rest: Tensor, length: float, scale: float) -> None:
        self.ended = not length > 10 * float(torch.finfo(rest.dtype).eps) * scale
        if self.ended:
            return
        self.rows.append(rest[:, 0] / length)
        self.names.append(self.names[-1] + 1 if self.names else 0)
        if not self.full:
            self.rows, self.names = self.rows[-2:], self.names[-2:]

    def vectors(self, y: Array) -> Tensor:
        """Q y for coordinates `(steps, k)`; needs `full`."""
        basis = torch.stack(self.rows[: self.steps], 1)
        return basis @ torch.as_tensor(y, dtype=basis.dtype, device=basis.device)

    def state(self) -> dict[str, Any]:
        """The small part of the state; the vectors are `rows`."""
        return {"alpha": np.array(self.alpha), "beta": np.array(self.beta), "ended": self.ended, "scale": self.scale}

    def restore(self, state: dict[str, Any], rows: dict[int, Tensor]) -> None:
        """Continue from `state`."""
        self.alpha, self.beta = state["alpha"].tolist(), state["beta"].tolist()
        self.ended, self.scale = bool(state["ended"]), float(state["scale"])
        self.names = sorted(rows)
        self.rows = [rows[name].to(self.op.device) for name in self.names]
