"""The top eigenpairs of a matrix that moves slowly: a few products per reading, shared by all that is asked.

Every product H x serves two questions at once: the top of H, and the top of P^(-1/2) (H + A) P^(-1/2), which is that of
the pencil (H + A) x = φ P x of the same matrix. See docs/theory/monitor.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from ..linalg.krylov.basis import KrylovBasis
from ..measure import Array
from ..operators import Counted
from ..operators.columns import joined_columns
from ..rng import Rng
from .warm_start import WarmStart

ROUNDING = 4.0  # units of rounding of ‖H‖ that the residual of a converged pair has
# Errors in units of ‖r‖²/λ, measured along training: half of them are below 2.5, nine of ten below 9.
CAUTION = 10.0
SURE = 0.1  # of the tolerance: the residual with which a reading from a random start counts as the top


@dataclass(frozen=True, eq=False)
class Pencil:
    """(H + A) x = φ P x with diagonals A (`added`) and P = 1/`scale`: what a diagonal preconditioner makes of H."""

    scale: Tensor
    added: Tensor

    def on(self, vectors: Tensor, matrix: Array) -> tuple[Array, Array]:
        """Vᵀ(H + A)V and VᵀPV for orthonormal V with VᵀHV = `matrix`."""
        exact = vectors.double()
        added = (exact.T @ (exact * self.added[:, None])).cpu().numpy()
        metric = (exact.T @ (exact / self.scale[:, None])).cpu().numpy()
        return matrix + (added + added.T) / 2, (metric + metric.T) / 2


@dataclass(frozen=True, eq=False)
class Top:
    """A largest eigenvalue, its coordinates in a basis, the norm of its residual, and how far off it may be."""

    value: float
    coordinates: Array
    residual: float
    error: float

    def within(self, tol: float) -> bool:
        """Whether the error is at most `tol` of the value."""
        return self.error <= tol * abs(self.value)


@dataclass(frozen=True, eq=False)
class TrackedTops:
    """What a reading found: the top of H, that of the pencil where there is one, and the basis they are in."""

    plain: Top
    other: Top | None
    basis: KrylovBasis
    products: int
    remembered: WarmStart  # what the next reading begins with

    def vector(self, top: Top) -> Tensor:
        """The unit vector of one of them, in the parameters."""
        found = self.basis.vectors(top.coordinates[:, None])[:, 0]
        return found / float(self.basis.layout.norms(found[:, None]))


def track(
    op: Counted,
    start: WarmStart | None,
    pencil: Pencil | None,
    *,
    tol: float,
    most: int,
    rng: Rng,
    fresh: bool = False,
) -> TrackedTops:
    """Rayleigh-Ritz on the vectors of the last reading, then on residuals, until both errors are at most `tol`.

    At most `most` products. `fresh` mixes a random vector into the start: a vector that has converged spans a space of
    its own, in which another one that has overtaken it is not seen. Such a reading, as one from nothing, goes on until
    the second pair of its space is no rival either.
    """
    before, basis = op.count, KrylovBasis(op)
    known = None if start is None else start.to(torch.empty(0, dtype=op.dtype, device=op.device))
    first = None if known is None else known.start(pencil)
    if first is None or fresh:
        drawn = op.layout.draw(rng, 1, "normal", op.dtype, op.device)
        drawn = drawn / float(op.layout.norms(drawn))
        first = drawn if first is None else joined_columns([first[:, :1] + drawn, first[:, 1:]])
    basis.append(first)
    sure = known is None or fresh
    for _ in range(min(basis.pending, most)):
        basis.process(1)
    while True:
        plain, other = _plain_top(basis), None if pencil is None else _pencil_top(basis, pencil)
        within = basis.size > 1 and plain.within(tol) and (other is None or other.within(tol))
        rival = _rival(basis, plain, tol) if sure and within else None
        if (within and rival is None) or op.count - before >= most:
            break
        if not (_expand(basis, plain, other, pencil) if rival is None else _process(basis, basis.C @ rival)):
            break
    return TrackedTops(plain, other, basis, op.count - before, WarmStart.of(basis, pencil, known))


def _rival(basis: KrylovBasis, plain: Top, tol: float) -> Array | None:
    """The Ritz vector in which a larger eigenvalue may hide: the top one itself while its residual could hold one near by,
    the second while an eigenvalue within its residual could be the largest.

    A space that holds little of the top rests on the next eigenvalue for a while as if that were it.
    """
    values, y, residuals = basis.ritz()
    if plain.residual > SURE * tol * abs(plain.value):
        return y[:, -1]
    beyond = basis.size > 1 and values[-2] + residuals[-2] > plain.value + tol * abs(plain.value)
    return y[:, -2] if beyond else None


def _plain_top(basis: KrylovBasis) -> Top:
    values, y, residuals = basis.ritz()
    return _top(basis, values, y[:, -1], float(residuals[-1]), basis.noise)


def _pencil_top(basis: KrylovBasis, pencil: Pencil) -> Top:
    """The largest φ on the same space; its residual is measured in the norm of P^(-1)."""
    values, c = scipy.linalg.eigh(*pencil.on(basis.columns(0, basis.size), basis.T))
    rest = _remainder(basis, pencil, c[:, -1], float(values[-1]))
    size = float(basis.layout.norms((rest * pencil.scale.sqrt())[:, None]))
    noise = basis.noise / max(basis.scale, 1e-300) * float(np.abs(values).max())
    return _top(basis, values, c[:, -1], size, noise)


def _top(basis: KrylovBasis, values: Array, y: Array, residual: float, noise: float) -> Top:
    rounding = ROUNDING * float(torch.finfo(basis.op.dtype).eps) * float(np.abs(values).max())
    size = float(np.sqrt(residual**2 + noise**2 + rounding**2))
    value = float(values[-1])
    return Top(value, y, size, error_of(values, size))


def error_of(values: Array, residual: float) -> float:
    """How far the largest Ritz value may be from the largest eigenvalue, from its residual.

    An eigenvalue lies within ‖r‖. The Rayleigh quotient errs by the square of an angle: ‖r‖²/gap (Kato-Temple), with the
    gap to those eigenvalues whose directions the residual holds. These are not known; CAUTION · ‖r‖²/λ stands for it.
    """
    value = float(values[-1])
    return residual if not value > 0 else min(residual, CAUTION * residual**2 / value)


def _remainder(basis: KrylovBasis, pencil: Pencil, c: Array, value: float) -> Tensor:
    """(H + A) x - φ P x for x = V c."""
    both = basis.vectors(np.stack([c, basis.T @ c], 1))
    image = both[:, 1] + _pending(basis, basis.C @ c)
    return image + (pencil.added - value / pencil.scale) * both[:, 0]


def _pending(basis: KrylovBasis, y: Array) -> Tensor:
    weights = torch.as_tensor(y, dtype=basis.rows.dtype, device=basis.rows.device)
    return basis.columns(basis.size, len(basis.names)) @ weights


def _expand(basis: KrylovBasis, plain: Top, other: Top | None, pencil: Pencil | None) -> bool:
    """One product more, on the residual of whichever is further from its value; whether there was any left."""
    behind = other is not None and other.error * abs(plain.value) > plain.error * abs(other.value)
    if behind and pencil is not None and other is not None:
        direction = pencil.scale * _remainder(basis, pencil, other.coordinates, other.value)
        lead = basis.append(direction[:, None])
    else:
        lead = (basis.C @ plain.coordinates)[:, None]
    return _process(basis, lead)


def _process(basis: KrylovBasis, lead: Array) -> bool:
    """A product with this combination of what is pending; whether there was anything."""
    if basis.pending == 0:
        return False
    if np.linalg.norm(lead) > 0:
        basis.lead(lead.reshape(-1, 1))
    basis.process(1)
    return True
