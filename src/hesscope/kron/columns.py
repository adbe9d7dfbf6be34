"""Factors of output Hessians: M_u = Σ_s N_s N_sᵀ with N_s = Gᵀ q_s, from one backward pass per column q_s of the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..curvature.losses.base import OutputLoss
from ..curvature.losses.softmax import SoftmaxLoss
from ..rng import Rng
from .tapped import Tapped


def gauss_newton_columns(tapped: Tapped, owners: Sequence[Tensor | None]) -> Iterator[tuple[Tensor, ...]]:
    """N_s of every seen layer, shape `(U, P, m)`, column after column.

    OutputLoss of the loss that belong to the same unit must not be mixed in one backward pass, so they get passes of their
    own; `owners` (None where each unit has one row) says which rows those are.
    """
    rows = tapped.terms
    assert isinstance(rows, OutputLoss)
    if not len(rows.f):  # every target of the chunk is ignored
        return
    ranks = torch.stack([torch.zeros(len(rows.f), dtype=torch.long) if o is None else _ranks(o) for o in owners])
    # OutputLoss with the same rank in every layer belong to different units of each.
    turns, turn = torch.unique(ranks, dim=1, return_inverse=True)
    for index in range(turns.shape[1]):
        mine = (turn == index).to(rows.f)[:, None]
        for column in loss_columns(rows):
            yield tapped.pull(rows.f, column if turns.shape[1] == 1 else column * mine)


def loss_columns(rows: OutputLoss) -> Iterator[Tensor]:
    """Columns q_s of a factor of ∂²ℓ/∂f², as few as there can be: c - 1 for a softmax over c classes."""
    if not isinstance(rows, SoftmaxLoss):
        for index in range(rows.columns()):
            yield rows.column(index)
        return
    # S √p = 0, so a Householder reflection that takes √p to the first axis leaves c - 1 columns.
    first = rows.column(0)
    root = rows.p.sqrt()
    turn = root / (1 + root[:, :1])
    for index in range(1, rows.columns()):
        yield rows.column(index).sub_(turn[:, index, None] * first)


def row_owners(tapped: Tapped, index: int) -> Tensor:
    """Which unit of a seen layer each row of the loss depends on; -1 where it depends on none.

    The rows' image under the tangent "digit of the unit's number times noise" is that digit times their image under
    the noise, because a row depends on one unit only.
    """
    rows, z = tapped.terms, tapped.seen[index].z
    assert isinstance(rows, OutputLoss)
    if not rows.f.requires_grad:
        return torch.full((len(rows.f),), -1)
    u = torch.zeros_like(rows.f, requires_grad=True)
    (pulled,) = torch.autograd.grad(rows.f, z, u, create_graph=True, retain_graph=True, materialize_grads=True)
    if not pulled.requires_grad:
        return torch.full((len(rows.f),), -1)
    noise = torch.randn(z.shape, generator=Rng(0).child("kron", "owners").torch()).to(z)
    number = torch.arange(len(z), device=z.device)

    def image(tangent: Tensor) -> Tensor:
        (out,) = torch.autograd.grad(pulled, u, tangent, retain_graph=True)
        return out.double()

    plain = image(noise)
    norm = plain.square().sum(-1)
    owners = torch.zeros(len(rows.f), dtype=torch.long, device=z.device)
    for base in (1, 1024):  # two digits, so that float32 keeps them apart
        digit = (number // base) % 1024
        seen = (image(noise * digit[:, None, None].to(z)) * plain).sum(-1)
        owners += base * (seen / norm.clamp_min(1e-300)).round().long()
    return torch.where(norm > 0, owners, torch.full_like(owners, -1)).cpu()


def unit_weights(tapped: Tapped, index: int, in_order: bool) -> Tensor:
    """What each unit counts for in the loss, in float64: the weights of its rows."""
    terms, units = tapped.terms, len(tapped.seen[index].z)
    if not isinstance(terms, OutputLoss):
        return torch.full((units,), terms.count / units, dtype=torch.float64)
    weight = terms.weight if isinstance(terms, SoftmaxLoss) else torch.ones(len(terms.f))
    weight = weight.detach().double().cpu()
    if in_order and len(weight) == units:
        return weight
    owners = row_owners(tapped, index)
    known = owners >= 0
    return torch.zeros(units, dtype=torch.float64).index_add_(0, owners[known], weight[known])


def _ranks(owners: Tensor) -> Tensor:
    """0 for the first row of each unit, 1 for its second, and so on; rows of no unit come first."""
    order = torch.argsort(owners, stable=True)
    ordered = owners[order]
    starts = torch.searchsorted(ordered, ordered)
    rank = torch.empty_like(owners)
    rank[order] = torch.arange(len(owners)) - starts
    return torch.where(owners >= 0, rank, torch.zeros_like(rank))
