"""Orthonormal vectors through a layout: repeated Gram-Schmidt, with rank detection."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...measure import Array
from ...operators import Layout
from ...operators.columns import joined_columns


def project_out(layout: Layout, basis: Tensor, block: Tensor) -> tuple[Tensor, Array]:
    """B − V(VᵀB) and VᵀB, with at least two passes ("twice is enough") and more where a column nearly vanishes."""
    total = np.zeros((basis.shape[1], block.shape[1]))
    if basis.shape[1] == 0:
        return block, total
    before: Array | None = None
    # What lies in a file is read vector by vector, from one end to the other.
    in_file = basis.device.type == "cpu" and basis.is_shared()  # type: ignore[no-untyped-call]
    parts = list(torch.split(basis, 1, 1)) if in_file else [basis]
    given = block
    for _ in range(4):
        found = [layout.inner(part, block) for part in parts]
        h = found[0] if len(found) == 1 else torch.cat(found)
        for part, along in zip(parts, found, strict=True):
            # Long vectors are made once: new memory takes longer than the sum.
            out = None if block is given else block.T
            block = _less(block, part, along.to(block.dtype), out)
        total += h.cpu().numpy()
        after = layout.norms(block).cpu().numpy()
        if before is not None and bool((after >= 0.5 * before).all()):
            break
        before = after
    return block, total


def _less(block: Tensor, basis: Tensor, h: Tensor, out: Tensor | None) -> Tensor:
    """B − V h, into `out` (rows) if it is given; a single column takes half the time as a vector."""
    if block.shape[1] == 1:
        row = None if out is None else out[0]
        return torch.addmv(block[:, 0], basis, h[:, 0], alpha=-1, out=row)[:, None]
    return torch.addmm(block.T, h.T, basis.T, alpha=-1, out=out).T


def orthonormalise(
    layout: Layout, block: Tensor, drop: float, against: Tensor | None = None, use_up: bool = False
) -> tuple[Tensor, Array]:
    """B = Q R with QᵀQ = I; columns whose remainder is at most `drop` are left out, so that Q is `(n, rank)`.

    With `against` given, B must already be orthogonal to it, and Q is kept so. A block that nobody needs again may be used up.
    """
    kept: list[Tensor] = []
    factor = np.zeros((block.shape[1], block.shape[1]))
    for j in range(block.shape[1]):
        column = block[:, j : j + 1]
        if kept:
            column, h = project_out(layout, joined_columns(kept), column)
            factor[: len(kept), j] = h[:, 0]
        length = float(layout.norms(column))
        if not length > drop:
            continue
        unit = column.div_(length) if use_up else column / length
        if against is not None and kept:
            # What is left of a column that lost most of its length may lean on the basis again.
            unit, _ = project_out(layout, against, unit)
            unit = unit / float(layout.norms(unit))
        factor[len(kept), j] = length
        kept.append(unit)
    q = block[:, :0] if not kept else kept[0] if len(kept) == 1 else joined_columns(kept)
    return q, factor[: len(kept)]
