"""From a sketch to the whole matrix: what exact answers still cost once some products are known."""

from __future__ import annotations

import torch
from torch import Tensor

from ..operators import Counted
from ..operators.columns import joined_columns
from .estimates.sketch import Sketch
from .exact import SMALL
from .resuming.checkpoint import Arrays, Store
from .validation import multiply, require_symmetry

MOST = 2000  # parameters of a matrix that may be multiplied out
FEW = 480  # up to this size no product is spent on closed forms that only estimate
Vectors = dict[int, Tensor]


def pays(op: Counted, spent: int, limit: int, reached: float, wanted: float) -> bool:
    """Whether all n products cost no more than what sampling has still to spend.

    Errors of sketches fall at least as 1/√products, and much faster where spectra decay: nearly half of n is sampled
    before that is decided. What is known by then counts, so that n products are never exceeded.
    """
    n = op.shape[0]
    if not SMALL < n <= min(MOST, limit) or reached <= wanted:
        return False
    needed = spent * (reached / wanted) ** 2 if wanted > 0 else float("inf")
    return (needed > n and spent * 1.25 > n / 2) or spent * 1.25 > n


def without_rest(vectors: Vectors) -> tuple[Vectors, Tensor | None]:
    """The vectors of a sketch in a state on disk, and the images of the rest if completing it had begun."""
    rest = [vectors[name] for name in sorted(vectors, reverse=True) if name < 0]
    own = {name: vector for name, vector in vectors.items() if name >= 0}
    return own, torch.stack(rest).T if rest else None


def completed(
    sketch: Sketch,
    begun: Tensor | None = None,
    store: Store | None = None,
    state: Arrays | None = None,
    earlier: int = 0,
) -> tuple[Tensor, Tensor]:
    """An orthonormal basis B of the whole space and A B, in float64, for the n − 2k products that are not known yet: of both
    the rows of this process.

    `begun`: what a killed run had of them; with a `store` it goes there 64 by 64, beside `state`, and names count down from −1.
    """
    op, layout = sketch.op, sketch.op.layout
    known = layout.gather(joined_columns([sketch.q, sketch.omega])).double()
    images = joined_columns([sketch.z, sketch.y]).double()
    whole, r = (layout.agreed(part) for part in torch.linalg.qr(known, mode="complete"))
    basis, count = whole[layout.local], known.shape[1]
    inside = torch.linalg.solve_triangular(r[:count], images, upper=True, left=False)
    before = op.count
    outside = torch.zeros(len(basis), 0, dtype=op.dtype, device="cpu") if begun is None else begun
    outside = outside.to(device=op.device, dtype=torch.float64)
    small, vectors = sketch.state()
    for part in (
        torch.split(basis[:, count + outside.shape[1] :], 64, dim=1) if count + outside.shape[1] < len(whole) else ()
    ):
        outside = joined_columns([outside, multiply(op, part.to(op.dtype)).double()])
        if store is not None:
            rest = {-1 - j: column.to(op.dtype) for j, column in enumerate(outside.T)}
            own = {**small, **(state or {}), "products": earlier + op.count - before}
            store.save(own, [*vectors, *rest], [*vectors.values(), *rest.values()])
    # Products are those with the rounded vectors; of a basis in float32 that is all the difference.
    images = joined_columns([inside, outside])
    cross = layout.inner(basis, images)
    size = float(torch.linalg.matrix_norm(cross))
    require_symmetry(op, float(torch.linalg.matrix_norm(cross - cross.T)) / 2, size)
    return basis, images
