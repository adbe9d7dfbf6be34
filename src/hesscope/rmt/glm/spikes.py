"""Eigenvalues outside the bulk: det(I + Λ Vᵀ Q̄ V) = 0 along every gap, and where their eigenvectors point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from ..separable.law import GeneralisedMarchenkoPastur
from ..separable.outside import Gap
from ..separable.population import Real
from .frame import Frame
from .geometry import Geometry
from .joint_law import Expectation

# Geometric towards both ends: a gap may be a billion times wider than the distance from its spike to the edge.
_NEAR = 0.5 ** np.arange(3, 48)
_SCAN = np.unique(np.concatenate([[0.0, 1.0], np.linspace(0.0, 1.0, 161)[1:-1], _NEAR, 1.0 - _NEAR]))


@dataclass(frozen=True)
class Alignment:
    """Squared cosines between an isolated eigenvector and the three directions (nan for a zero vector)."""

    mean: float
    w_star: float
    w: float


@dataclass(frozen=True)
class Spike:
    """An isolated eigenvalue: its limit, its side ("left", "right" or "gap"), the distance to the bulk, its vector."""

    location: float
    side: str
    distance: float
    alignment: Alignment

    @property
    def isolated(self) -> bool:
        """True while the spike is off the bulk by more than rounding (a merged one sits at the edge)."""
        return self.distance > 1e-9 * abs(self.location)


@dataclass(frozen=True, eq=False)
class SpikeEquation:
    """G = I + Λ M on real points outside the bulk, Λ = E[g/(1+gδ)([1;z][1;z]ᵀ - diag(0,I))], M = Vᵀ Q̄ V.

    V = [mean, C^(1/2) B] has rank + 1 columns, which are [mean, C w_star, C w] times `mix`.
    """

    law: GeneralisedMarchenkoPastur
    expectation: Expectation
    frame: Frame
    geometry: Geometry

    @property
    def mix(self) -> Real:
        out = np.zeros((3, 1 + self.frame.rank))
        out[0, 0] = 1.0
        out[1:, 1:] = self.frame.basis
        return out

    def signature(self, gap: Gap, u: Real) -> Real:
        """Sorted eigenvalues of [[M, I], [I, -Λ]] (scaled) at curve coordinates u; a zero among them is a zero of det G.

        The dilation is symmetric, so its sorted eigenvalues are continuous and every zero shows as a change of sign,
        even where M and Λ are both indefinite or V has dependent columns.
        """
        curve = gap.curve
        top, bottom = curve.outer.at(u)
        k1, _ = curve.g.projective(top, bottom)
        place = curve.trace(u)[2]
        top2, bottom2 = curve.inner.at(place)
        t1, _ = curve.t.projective(top2, bottom2)
        nodes = self.expectation.nodes
        lam = self.expectation.weighted(nodes / (np.multiply.outer(bottom, nodes) - top[:, None]))
        values = self.geometry.values
        scaled = np.stack([np.ones_like(values), values, values], axis=1)
        columns = self.geometry.grams * scaled[:, :, None] * scaled[:, None, :]
        kernel = 1.0 / (np.multiply.outer(bottom2, values) - top2[:, None])
        with np.errstate(divide="ignore", invalid="ignore"):
            by_g = np.abs(k1 * bottom) > np.abs(t1 * bottom2) * curve.ratio
            factor = np.where(by_g, bottom2 / k1, bottom / (curve.ratio * t1))
        m = self.mix.T @ (factor[:, None, None] * np.tensordot(kernel, columns, axes=([1], [0]))) @ self.mix
        unit = np.broadcast_to(np.eye(m.shape[1]), m.shape)
        size = np.sqrt(np.abs(lam).max(axis=(1, 2)) / np.maximum(np.abs(m).max(axis=(1, 2)), 1e-300))[:, None, None]
        size = np.where((size > 0) & np.isfinite(size), size, 1.0)
        dilated = np.concatenate(
            [np.concatenate([m * size, unit], axis=2), np.concatenate([unit, -lam / size], axis=2)], axis=1
        )
        return np.asarray(np.linalg.eigvalsh(dilated))

    def roots(self, gap: Gap) -> list[float]:
        """The locations x of all zeros of det G in one gap."""
        u = gap.start + (gap.stop - gap.start) * _SCAN
        u = u[int(np.isinf(gap.left)) : u.size - int(np.isinf(gap.right))]
        signs = self.signature(gap, u)
        found = []
        for i, j in np.argwhere((signs[:-1] < 0) != (signs[1:] < 0)):

            def value(at: float, j: int = j) -> float:
                return float(self.signature(gap, np.array([at]))[0, j])

            root = brentq(value, u[i], u[i + 1], xtol=1e-15, rtol=1e-14)
            found.append(float(gap.curve.trace(np.array([root]))[0][0]))
        return found

    def edge_signature(self, gap: Gap, side: str) -> Real:
        """The signature at the gap's end next to the bulk: it changes sign where a spike leaves or enters the bulk."""
        return np.asarray(self.signature(gap, np.array([gap.start if side == "right" else gap.stop]))[0])

    def overlaps(self, x: float) -> Alignment:
        """Squared cosines from the residue of Q̄ at x, with the total derivative of G (δ moves with x)."""
        delta, e = (float(v[0].real) for v in self.law.fixed_point(np.array([x + 0j])))
        nodes, ratio = self.expectation.nodes, self.law.ratio
        factor = nodes / (1.0 + nodes * delta)
        lam, lam_delta = self.expectation.weighted(factor), -self.expectation.weighted(factor**2)
        t, shares = self.geometry.values, self.geometry.shares
        resolvent = 1.0 / (t * e - x)
        e_delta = lam_delta[0, 0]
        slope = ratio * (shares * t) @ resolvent**2 / (1.0 + ratio * e_delta * (shares * t**2) @ resolvent**2)
        e_x = e_delta * slope
        scaled = np.stack([np.ones_like(t), t, t], axis=1)
        half = self.geometry.grams * scaled[:, None, :]
        full = half * scaled[:, :, None]
        m = self.mix.T @ np.tensordot(resolvent, full, axes=([0], [0])) @ self.mix
        m_x = self.mix.T @ np.tensordot(resolvent**2 * (1.0 - t * e_x), full, axes=([0], [0])) @ self.mix
        reach = np.tensordot(resolvent, half, axes=([0], [0])) @ self.mix
        right, left = _null_vectors(np.eye(m.shape[0]) + lam @ m)
        derivative = left.T @ (lam_delta * slope @ m + lam @ m_x) @ right
        residue = reach @ right @ np.linalg.solve(derivative, left.T @ lam @ reach.T)
        norms = np.array([self.geometry.inner(i, i) for i in range(3)])
        with np.errstate(divide="ignore", invalid="ignore"):
            cosines = np.where(norms > 0, np.diag(residue) / norms, np.nan)
        return Alignment(*(float(value) for value in cosines))


def _null_vectors(matrix: Real) -> tuple[Real, Real]:
    """Right and left null vectors: the smallest singular pair, and any other within 1e-7 of zero."""
    u, s, vt = np.linalg.svd(matrix)
    null = (s <= 1e-7 * max(1.0, s[0])) | (np.arange(s.size) == s.size - 1)
    return np.asarray(vt[null].T), np.asarray(u[:, null])


def find_spikes(equation: SpikeEquation) -> list[Spike]:
    """All isolated eigenvalues, ascending, from both sides of the spectrum and from the gaps between bulks."""
    spikes: list[Spike] = []
    for gap in equation.law.gaps:
        side = "left" if np.isinf(gap.left) else "right" if np.isinf(gap.right) else "gap"
        for x in equation.roots(gap):
            distance = min(abs(x - end) for end in (gap.left, gap.right) if np.isfinite(end))
            spikes.append(Spike(x, side, distance, equation.overlaps(x)))
    return sorted(spikes, key=lambda spike: spike.location)
