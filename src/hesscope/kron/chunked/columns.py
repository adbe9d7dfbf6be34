"""Factors of output Hessians: M_u = Σ_s N_s N_sᵀ with N_s = Gᵀ q_s, from one backward pass per column q_s of the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ...curvature.engines.backward import noise_like
from ...curvature.losses.base import OutputLoss
from ...curvature.losses.softmax import SoftmaxLoss
from ...errors import refuse
from ...layers.proof import pulled_back
from ...rng import Rng
from .chunk_run import ChunkRun

_DIGIT = 1024  # numbers of units are read digit by digit, so that float32 keeps them apart
_DIGITS = {torch.float64: 1e-9, torch.float32: 1e-4}


def gauss_newton_columns(run: ChunkRun, owners: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """N_s of every layer, shape `(U, P, m)`, column after column.

    Rows of the loss that belong to the same unit must not be mixed in one backward pass, so they get passes of their
    own; `owners` says which rows those are.
    """
    rows = run.rows
    if not len(rows.f):  # every target of the chunk is ignored
        return
    # Rows with the same rank in every layer belong to different units of each.
    turns, turn = torch.unique(torch.stack([_ranks(o) for o in owners]), dim=1, return_inverse=True)
    for index in range(turns.shape[1]):
        mine = (turn == index).to(rows.f)[:, None]
        for column in loss_columns(rows):
            yield run.gradients(column if turns.shape[1] == 1 else column * mine)


def sampled_columns(run: ChunkRun, count: int, rng: Rng) -> Iterator[tuple[Tensor, ...]]:
    """N = Gᵀ S ε of every layer for random signs ε over all rows and columns at once: E[N Nᵀ] = M, pass by pass."""
    for draw in range(count):
        if len(run.rows.f):
            yield run.gradients(run.rows.random_column(rng.child(draw).torch()))


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


def row_owners(run: ChunkRun) -> list[Tensor]:
    """Which unit of each layer every row of this chunk's loss depends on; -1 where it depends on none.

    Which example, where it depends on several positions that are units otherwise.
    """
    run = ChunkRun(run.run, tuple(how.with_terms for how in run.layers), run.near_outputs)
    in_order = torch.arange(len(run.rows.f), device="cpu")
    # Which example a row belongs to is the same for all layers, and cheapest to see close to the outputs.
    examples = run.near_outputs
    if examples is not None and _in_order(examples, nowhere_zero=True)[0]:
        ordered = [not layer.flat and run.shape(i)[0] == len(in_order) for i, layer in enumerate(run.layers)]
    else:
        ordered = [False] * len(run.layers)
    rest = [i for i, known in enumerate(ordered) if not known]
    for i, known in zip(rest, _in_order(run.only(rest)) if rest else [], strict=True):
        ordered[i] = known
    return [in_order if known else _found_owners(run, i) for i, known in enumerate(ordered)]


def _in_order(run: ChunkRun, nowhere_zero: bool = False) -> list[bool]:
    """Whether row r depends on unit r only: then gradients of a weighted sum over rows are weighted alike."""
    rows = run.rows
    same_number = [run.shape(i)[0] == len(rows.f) for i in range(len(run.layers))]
    if not len(rows.f) or not any(same_number):
        return [False] * len(same_number)
    rng = Rng(0).child("kron", "order")
    cotangent, weight = noise_like(rng, rows.f), noise_like(rng.child("weight"), rows.f, len(rows.f), 1)
    found = []
    for fits, plain, weighted in zip(
        same_number, run.gradients(cotangent), run.gradients(cotangent * weight), strict=True
    ):
        if not fits or (nowhere_zero and not bool(plain.flatten(1).any(1).all())):
            found.append(False)
            continue
        gap = float((plain * weight[:, :, None] - weighted).abs().max())
        found.append(gap <= _DIGITS.get(plain.dtype, 1e-2) * float(plain.abs().max()))
    return found


def _found_owners(run: ChunkRun, index: int) -> Tensor:
    """The rows' image under the tangent "digit of the unit's number times noise" is that digit times their image under
    the noise, because a row depends on one unit only."""
    f, z, layer = run.rows.f, run.run.layers[index].z, run.layers[index]
    none = torch.full((len(f),), -1, device="cpu")
    if not f.requires_grad or not len(f):
        return none
    u, pulled = pulled_back(f, z)
    if not pulled.requires_grad:
        return none
    units, positions, m = run.shape(index)
    noise = noise_like(Rng(0).child("kron", "owners"), z, units, positions, m)
    number = torch.arange(units, device=z.device)

    def image(tangent: Tensor) -> Tensor:
        (out,) = torch.autograd.grad(pulled, u, layer.raw(tangent, z), retain_graph=True)
        return out.double()

    plain = image(noise)
    norm = plain.square().sum(-1)
    owners = torch.zeros(len(f), dtype=torch.long, device=z.device)
    base = 1
    while base == 1 or base <= units:
        digit = (number // base) % _DIGIT
        seen = image(noise * digit[:, None, None].to(z))
        found = ((seen * plain).sum(-1) / norm.clamp_min(1e-300)).round()
        if not bool(((seen - found[:, None] * plain).square().sum(-1) <= 0.01 * norm).all()):
            refuse(
                "every term of the loss must depend on one example, or on one position of it",
                f"terms that depend on several units of {layer.layer.name!r}",
                "Use hs.Hessian(problem).block(...) for it.",
            )
        owners += base * found.long()
        base *= _DIGIT
    return torch.where(norm > 0, owners.clamp(0, units - 1), torch.full_like(owners, -1)).cpu()


def unit_weights(run: ChunkRun, index: int, owners: Tensor | None) -> Tensor:
    """What each unit counts for in the loss, in float64: the weights of its rows, or its share of them."""
    terms, units = run.run.terms, run.shape(index)[0]
    if owners is None or not isinstance(terms, OutputLoss):
        return torch.full((units,), terms.count / units, dtype=torch.float64, device="cpu")
    how = run.layers[index].with_terms
    if how is not run.layers[index]:
        positions = how.units(run.run.layers[index].z.detach()).shape[1]
        units //= positions
        return _counted(terms, units, owners).div_(positions).repeat_interleave(positions)
    return _counted(terms, units, owners)


def _counted(terms: OutputLoss, units: int, owners: Tensor) -> Tensor:
    weight = (
        terms.weight if isinstance(terms, SoftmaxLoss) else torch.ones(len(terms.f), dtype=torch.float64, device="cpu")
    )
    known = owners >= 0
    return torch.zeros(units, dtype=torch.float64, device="cpu").index_add_(
        0, owners[known], weight.detach().double().cpu()[known]
    )


def _ranks(owners: Tensor) -> Tensor:
    """0 for the first row of each unit, 1 for its second, and so on; rows of no unit come first."""
    order = torch.argsort(owners, stable=True)
    ordered = owners[order]
    starts = torch.searchsorted(ordered, ordered)
    rank = torch.empty_like(owners)
    rank[order] = torch.arange(len(owners), device="cpu") - starts
    return torch.where(owners >= 0, rank, torch.zeros_like(rank))
