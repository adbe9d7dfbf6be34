"""‖H - A ⊗ B‖_F of a layer's Hessian: exactly where that is affordable, else with a standard error."""

from __future__ import annotations

from functools import cached_property
from math import hypot, inf, sqrt

import torch
from torch import Tensor

from ..linalg.estimates.estimate import mean_and_stderr
from ..linalg.validation import require_room_for_squares
from ..operators import Kronecker, LinearOperator
from ..rng import Rng
from .layer_operator import LayerHessian
from .nearest import against_inputs

EXACT_FLOPS = 1e12
_PROBES = 16


def rounding_of(dtype: torch.dtype) -> float:
    """How far ‖H - A ⊗ B‖ / ‖H‖ may be off where it comes from the squares of both and their product."""
    return 4 * sqrt(torch.finfo(dtype).eps)


class Distances:
    """‖H - A ⊗ B‖_F of one layer for any number of Kronecker products; what depends on H alone is computed once.

    Exact by columns (m n products) for small layers, or by Gram matrices of per-example gradients for little data;
    else the part in span(top), eigenvectors of H, is exact and random probes estimate the rest.
    """

    def __init__(self, op: LayerHessian, top: Tensor | None = None, exact_flops: float = EXACT_FLOPS) -> None:
        self.op, self.top = op, top
        self.forms = op.held_blocks()
        columns = pairs = inf
        if self.forms is not None:
            columns = op.shape[0] * sum(form.product_flops() for form in self.forms)
            pairs = sum(f.inner_flops(other) for i, f in enumerate(self.forms) for other in self.forms[: i + 1])
        # Pairs give ‖H‖ once for every Kronecker product; columns are needed anew for each.
        self.method = "columns" if columns <= pairs / 4 else "pairs"
        if (columns if self.method == "columns" else pairs) > exact_flops:
            self.method = "probes"

    def squared(self, kron: Kronecker | None) -> tuple[float, float]:
        """(‖H - A ⊗ B‖_F², its standard error), the latter 0 where the value is exact; ‖H‖_F² without `kron`."""
        if self.method == "probes":
            return self._by_probes(kron)
        return (self._by_columns(kron) if self.method == "columns" else self._by_pairs(kron)), 0.0

    def relative(self, kron: Kronecker) -> tuple[float, float]:
        """‖H - A ⊗ B‖_F / ‖H‖_F, and its standard error: 0 where it is exact, and not so small that rounding shows in it."""
        (gap, gap_stderr), (norm, norm_stderr) = self.squared(kron), self.norm
        if not norm > 0:
            return 0.0, 0.0
        value = sqrt(max(gap, 0.0) / norm)
        drawn = 0.5 * value * (gap_stderr / gap + norm_stderr / norm) if gap > 0 else 0.0
        rounding = rounding_of(self.op.dtype) if self.method == "pairs" else 0.0
        shows = value <= 10 * rounding
        return value, drawn + (hypot(value, rounding) - value if shows else 0.0)

    @cached_property
    def norm(self) -> tuple[float, float]:
        """‖H‖_F² and its standard error."""
        found = self.squared(None)
        require_room_for_squares(self.op, max(found[0], 0.0) ** 0.5)
        return found

    def _by_columns(self, kron: Kronecker | None) -> float:
        n, total = self.op.shape[0], 0.0
        difference: LinearOperator = self.op if kron is None else self.op - kron
        for start in range(0, n, 256):
            stop = min(start + 256, n)
            eye = torch.zeros(n, stop - start, dtype=self.op.dtype, device=self.op.device)
            eye[torch.arange(start, stop, device="cpu"), torch.arange(stop - start, device="cpu")] = 1
            total += float(difference.apply(eye).double().square().sum())
        return total

    def _by_pairs(self, kron: Kronecker | None) -> float:
        if kron is None:
            assert self.forms is not None
            mixed = sum(2 * f.inner(other) for i, f in enumerate(self.forms) for other in self.forms[:i])
            return (mixed + sum(f.inner(f) for f in self.forms)) * self.op.problem.scale**2
        inner = float((against_inputs(self.op, kron.right) * kron.left.cpu().double()).sum())
        size = float(kron.left.double().square().sum() * kron.right.double().square().sum())
        return max(0.0, self.norm[0] - 2 * inner + size)

    def _by_probes(self, kron: Kronecker | None) -> tuple[float, float]:
        block, image, inside = self._sketch
        gap = (image if kron is None else image - kron.apply(block)).double().square().sum(0)
        mean, stderr = mean_and_stderr(gap[inside:].cpu().numpy())
        return float(gap[:inside].sum()) + mean, stderr

    @cached_property
    def _sketch(self) -> tuple[Tensor, Tensor, int]:
        """Orthonormal columns of span(top), then Gaussian probes orthogonal to it, and H times both."""
        n, op = self.op.shape[0], self.op
        empty = torch.zeros(n, 0, dtype=op.dtype, device=op.device)
        q = empty if self.top is None else torch.linalg.qr(self.top.to(op.dtype))[0]
        noise = torch.randn(
            n, _PROBES, generator=Rng(0).child("frobenius").torch(), dtype=torch.float64, device="cpu"
        ).to(q)
        block = torch.cat([q, noise - q @ (q.T @ noise)], 1)
        return block, torch.cat([op.apply(block[:, j : j + 8]) for j in range(0, block.shape[1], 8)], 1), q.shape[1]
