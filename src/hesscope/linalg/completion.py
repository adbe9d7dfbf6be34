"""From a sketch to the whole matrix: what exact answers still cost once some products are known."""

from __future__ import annotations

import torch
from torch import Tensor

from ..operators import Counted
from .exact import SMALL
from .sketch import Sketch
from .validation import multiply, require_symmetry

MOST = 2000  # parameters of a matrix that may be multiplied out


def pays(op: Counted, spent: int, limit: int, reached: float, wanted: float) -> bool:
    """Whether all n products cost no more than what sampling has still to spend.

    Errors of sketches fall at least as 1/√products, and much faster where spectra decay: nearly half of n is sampled
    before that is decided. What is known by then counts, so that n products are never exceeded.
    """
    n = op.shape[0]
    if not SMALL < n <= min(MOST, limit) or op.layout.local_size != n or reached <= wanted:
        return False
    needed = spent * (reached / wanted) ** 2 if wanted > 0 else float("inf")
    return (needed > n and spent * 1.25 > n / 2) or spent * 1.25 > n


def completed(sketch: Sketch) -> tuple[Tensor, Tensor]:
    """An orthonormal basis B of the whole space and A B, in float64, for the n − 2k products that are not known yet."""
    op, known = sketch.op, torch.cat([sketch.q, sketch.omega], 1).double()
    images = torch.cat([sketch.z, sketch.y], 1).double()
    basis, r = torch.linalg.qr(known, mode="complete")
    count = known.shape[1]
    inside = torch.linalg.solve_triangular(r[:count], images, upper=True, left=False)
    new = basis[:, count:]
    outside = torch.cat([multiply(op, part.to(op.dtype)).double() for part in torch.split(new, 64, dim=1)], 1)
    # Products are those with the rounded vectors; of a basis in float32 that is all the difference.
    images = torch.cat([inside, outside], 1)
    cross = basis.T @ images
    size = float(torch.linalg.matrix_norm(cross))
    require_symmetry(op, float(torch.linalg.matrix_norm(cross - cross.T)) / 2, size)
    return basis, images
