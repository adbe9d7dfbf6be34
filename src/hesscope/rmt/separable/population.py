"""A population seen through its transforms: real atoms, or a deformed contour of a law with a continuous part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import refuse
from ...measure import AtomicMeasure

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]
Nodes = NDArray[Any]
Mask = NDArray[np.bool_]

_CHUNK = 1_500_000


@dataclass(frozen=True, eq=False)
class Population:
    """Σ_k w_k f(node_k) = E f(g) for f analytic in the upper half-plane; zeros are kept apart as `zero_mass`.

    Nodes are real atoms, or complex with negative imaginary part: points of a contour pushed below the real axis, on
    which 1/(g - ζ) is smooth for every ζ in the closed upper half-plane, so that tails need no special care.
    `support_intervals` are closed intervals that carry the law; between them the transforms are real-analytic.
    """

    nodes: Nodes
    weights: Nodes
    support_intervals: tuple[tuple[float, float], ...]
    zero_mass: float
    atomic: bool

    @staticmethod
    def atoms(measure: AtomicMeasure, what: str) -> Population:
        """The population of an atomic measure; atoms closer than rounding are merged."""
        nodes, weights = np.asarray(measure.nodes, dtype=np.float64), np.asarray(measure.weights, dtype=np.float64)
        if not np.all(np.isfinite(nodes)):
            refuse(f"{what} must have finite nodes", "nan or inf among them", "Drop or repair these nodes.")
        keep = weights > 0
        nodes, weights = nodes[keep], weights[keep]
        size = float(np.abs(nodes).max())
        start = np.flatnonzero(np.concatenate([[True], np.diff(nodes) > 4e-15 * size]))
        merged = np.add.reduceat(weights, start)
        centres = np.add.reduceat(weights * nodes, start) / merged
        live = centres != 0
        points = centres[live]
        return Population(
            points, merged[live], tuple((float(x), float(x)) for x in points), float(merged[~live].sum()), True
        )

    @property
    def is_dirac(self) -> bool:
        return self.nodes.size == 1

    @property
    def low(self) -> float:
        return self.support_intervals[0][0] if self.support_intervals else 0.0

    @property
    def high(self) -> float:
        return self.support_intervals[-1][1] if self.support_intervals else 0.0

    def moment(self, k: int) -> float:
        """E[g^k]; k = 0 counts the zeros too."""
        return 1.0 if k == 0 else float(np.real(self.weights @ self.nodes**k))

    def response(self, delta: Complex) -> tuple[Complex, Complex]:
        """E[g/(1 + gδ)] and its derivative -E[g²/(1 + gδ)²] at each δ in the closed upper half-plane."""
        value, slope = np.empty_like(delta), np.empty_like(delta)
        step = max(1, _CHUNK // self.nodes.size)
        for start in range(0, delta.size, step):
            part = slice(start, start + step)
            ratio = self.nodes / (1.0 + np.multiply.outer(delta[part], self.nodes))
            value[part] = ratio @ self.weights
            np.multiply(ratio, ratio, out=ratio)
            slope[part] = -(ratio @ self.weights)
        return value, slope

    def log_response(self, delta: Complex) -> Complex:
        """E log(1 + gδ), on the branch that is continuous in the upper half-plane and 0 at δ = 0."""
        out = np.empty_like(delta)
        step = max(1, _CHUNK // self.nodes.size)
        for start in range(0, delta.size, step):
            part = delta[start : start + step]
            # 1/δ + g never leaves the closed lower half-plane; a rounded +0 there would jump by 2π.
            inner = np.add.outer(1.0 / part, self.nodes)
            inner.imag = -np.abs(inner.imag)
            total = (self.weights if np.iscomplexobj(self.weights) else self.weights + 0j).sum()
            out[start : start + step] = np.log(inner) @ self.weights + total * np.log(part)
        return out

    def projective(self, top: Real, bottom: Real) -> tuple[Real, Real]:
        """k1 = E[g/(gb - a)] and k2 = E[g²/(gb - a)²] at ζ = a/b on the real projective line, off the support intervals."""
        first, second = np.empty_like(top), np.empty_like(top)
        step = max(1, _CHUNK // self.nodes.size)
        for start in range(0, top.size, step):
            part = slice(start, start + step)
            ratio = self.nodes / (np.multiply.outer(bottom[part], self.nodes) - top[part][:, None])
            first[part] = np.real(ratio @ self.weights)
            second[part] = np.real((ratio * ratio) @ self.weights)
        return first, second
