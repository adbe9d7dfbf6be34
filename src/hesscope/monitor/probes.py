"""Trace and block-diagonality from two random products, with what is already known of the matrix taken out first."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..linalg.estimates.estimate import ratio_of_means
from ..linalg.krylov.basis import KrylovBasis
from ..linalg.krylov.orthogonal import project_out
from ..linalg.validation import multiply
from ..measure import Array
from ..operators.columns import joined_columns
from ..rng import Rng

WINDOW = 8
LEAST = 3  # readings before a share has an error


@dataclass(frozen=True)
class Probed:
    """tr H with its standard error, and one unbiased pair: ‖H‖² and the part of it in the diagonal blocks."""

    trace: float
    trace_error: float
    squares: float
    diagonal_squares: float


def probe(basis: KrylovBasis, labels: Tensor, blocks: int, rng: Rng) -> Probed:
    """Two products: with random signs z, and with the same signs turned block by block, S z.

    With Q the basis of the reading, H = K + R, where K is what its products tell exactly and R = (1 - QQᵀ) H (1 - QQᵀ)
    is the rest, small where Q holds the outliers. For block I, (R z)_I · s_I (R S z)_I averages to ‖R_II‖², because
    whatever comes from other blocks changes its sign. docs/theory/monitor.md.
    """
    own, layout = basis.columns(0, basis.size), basis.layout
    z = layout.draw(rng.child("signs"), 1, "rademacher", basis.op.dtype, basis.op.device)
    turns = torch.randint(0, 2, (blocks,), generator=rng.child("blocks").torch(), device="cpu").to(z) * 2 - 1
    labels = labels.to(z.device)
    turn = turns[labels][:, None]
    a, b = (_rest(basis, own, x) for x in (z, turn * z))
    rest = float((a.double().square().sum() + b.double().square().sum()) / 2)
    trace = float(np.trace(basis.T)) + float((z.double() * a.double()).sum() + (turn * z * b).double().sum()) / 2
    images = joined_columns([own, basis.columns(basis.size, len(basis.names)) @ _like(basis.C, z)]).double()
    core = np.block([[basis.T, np.eye(basis.size)], [np.eye(basis.size), np.zeros((basis.size, basis.size))]])
    middle = torch.as_tensor(core, device=z.device)
    diagonal = float(_by_block((a * turn * b).double(), labels, blocks).sum())
    for block in range(blocks):
        here = labels == block
        part = images[here]
        gram = middle @ (part.T @ part)
        diagonal += float((gram @ gram).trace())
        for left, right in ((z, a), (turn * z, b)):
            diagonal += float((part.T @ left[here].double()).T @ middle @ (part.T @ right[here].double()))
    known = float((basis.T**2).sum() + 2 * (basis.C**2).sum())
    # The two probes share their signs, so their average is not taken to be better than one of them.
    return Probed(trace, math.sqrt(2 * rest), known + rest, diagonal)


def _rest(basis: KrylovBasis, own: Tensor, x: Tensor) -> Tensor:
    """R x."""
    inside, _ = project_out(basis.layout, own, x)
    image = multiply(basis.op, inside.contiguous())
    return project_out(basis.layout, own, image)[0]


def _like(matrix: Array, like: Tensor) -> Tensor:
    return torch.as_tensor(matrix, dtype=like.dtype, device=like.device)


def _by_block(x: Tensor, labels: Tensor, blocks: int) -> Tensor:
    return torch.zeros(blocks, dtype=torch.float64, device=x.device).index_add_(0, labels, x[:, 0])


@dataclass
class DiagonalShare:
    """The share of ‖H‖² in diagonal blocks, over the last few readings: one pair alone is too noisy to have an error."""

    pairs: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, found: Probed) -> None:
        self.pairs.append((found.diagonal_squares, found.squares))

    def value(self) -> tuple[float, float] | None:
        """The ratio of the means and its standard error; None for too few readings."""
        if len(self.pairs) < LEAST:
            return None
        return ratio_of_means(np.array(self.pairs))
