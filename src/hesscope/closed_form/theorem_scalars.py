"""The numbers of Theorem 3.5 and its remarks: what the spectrum of a scalar self-attention layer is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..errors import refuse
from ..measure import Array
from ._inputs import finite, same_length
from .attention import checked_bias
from .row_activation import SOFTMAX


@dataclass(frozen=True, eq=False)
class AttentionScalars:
    """α, β, γ, ζ of one scalar self-attention layer, with ξ, bounds and roots that follow from them.

    The Hessian over (w_V, w_Q, w_K) has d_K − 1 pairs ±γ and three outliers, the roots of a cubic whose coefficients are
    made of these numbers and the lengths of w_Q and w_K. `moments` are m_1, m_2, m_3 of Definition B.1, (B, L) each.
    """

    alpha: float
    beta: float
    gamma: float
    zeta: float
    queries: float  # |w_Q|²
    keys: float  # |w_K|²
    product: float  # <w_Q, w_K>
    key_width: int
    moments: tuple[Array, Array, Array]

    @property
    def trace(self) -> float:
        """tr H = α + ζ(|w_K|² + |w_Q|²), which is also the sum of the outliers."""
        return self.alpha + self.zeta * (self.keys + self.queries)

    @property
    def _coefficients(self) -> tuple[float, float]:
        """B and C of −λ³ + tr(H) λ² + B λ + C."""
        bent = self.beta**2 - self.alpha * self.zeta
        linear = bent * (self.keys + self.queries) + 2 * self.gamma * self.zeta * self.product + self.gamma**2
        return linear, 2 * self.gamma * bent * self.product - self.alpha * self.gamma**2

    @property
    def xi(self) -> float:
        """ξ of Theorem 3.5, with squared norms where the paper prints norms."""
        return float(2 / 3 * np.sqrt(max(3 * self._coefficients[0] + self.trace**2, 0.0)))

    @property
    def outlier_bounds(self) -> tuple[float, float]:
        """tr(H)/3 ∓ ξ: every outlier lies between them (Theorem 3.5)."""
        return self.trace / 3 - self.xi, self.trace / 3 + self.xi

    @property
    def largest_outlier_bounds(self) -> tuple[float, float]:
        """tr(H)/3 + ξ/2 and tr(H)/3 + ξ: Remark B.4, which holds for the largest outlier; λ_max is that or |γ|."""
        return self.trace / 3 + self.xi / 2, self.trace / 3 + self.xi

    @property
    def condition_bound(self) -> float:
        """Remark 3.1: |λ_max|/|λ_min| is at least this, for d_K >= 2; infinite where γ = 0."""
        if self.key_width < 2:
            refuse(
                "Remark 3.1 needs a bulk, so d_K of at least 2", f"d_K = {self.key_width}", "Use the spectrum itself."
            )
        return (2 * self.trace + 3 * self.xi) / (6 * abs(self.gamma)) if self.gamma else float("inf")

    @property
    def outliers(self) -> Array:
        """The three roots by Viète's formula, ascending; its argument is clipped, since it leaves [−1, 1] by rounding."""
        shift, (linear, constant) = self.trace / 3, self._coefficients
        p = -(linear + self.trace**2 / 3)
        q = -(2 * self.trace**3 + 9 * self.trace * linear + 27 * constant) / 27
        if p == 0:
            return np.full(3, shift - np.cbrt(q))
        radius = 2 * np.sqrt(-p / 3)
        angle = np.arccos(np.clip(3 * q / (p * radius), -1.0, 1.0)) / 3
        return np.asarray(np.sort(shift + radius * np.cos(angle - 2 * np.pi * np.arange(3) / 3)))

    @property
    def outliers_without_residual(self) -> Array:
        """Remark B.3: the two outliers that are not zero when γ = 0, ascending."""
        inside = self.trace**2 + 4 * (self.beta**2 - self.alpha * self.zeta) * (self.keys + self.queries)
        return np.asarray(0.5 * (self.trace + np.sqrt(inside) * np.array([-1.0, 1.0])))

    @property
    def query_key_outliers(self) -> Array:
        """Remark B.2: the block of queries and keys has the form of a two-layer linear network: ±γ and these two, ascending."""
        total = self.zeta * (self.keys + self.queries)
        inside = total**2 + 4 * self.gamma * (self.gamma + 2 * self.zeta * self.product)
        return np.asarray(0.5 * (total + np.sqrt(max(inside, 0.0)) * np.array([-1.0, 1.0])))


def attention_scalars(
    w_V: ArrayLike, w_Q: ArrayLike, w_K: ArrayLike, X: ArrayLike, Y: ArrayLike, score_bias: ArrayLike | None = None
) -> AttentionScalars:
    """α, β, γ, ζ of a softmax layer of embedding dimension 1: w_V a number, w_Q and w_K (d_K,), X and Y (L,) or (B, L).

    In a batch they are means over the sequences. `score_bias` as in `self_attention`.

    >>> s = attention_scalars(1.0, [0.3, -0.2], [0.1, 0.4], [1.0, -0.5, 2.0], [0.0, 1.0, 0.5])
    >>> round(s.alpha, 4), round(s.gamma, 4), [round(float(v), 4) for v in s.outliers]
    (0.6447, 0.348, [-0.3032, 0.2779, 0.9547])
    """
    value, keys, queries = (
        float(finite("w_V", w_V, (0, 1)).reshape(-1)[0]),
        finite("w_K", w_K, (1,)),
        finite("w_Q", w_Q, (1,)),
    )
    width = same_length(w_Q=len(queries), w_K=len(keys))
    x, y = (np.atleast_2d(finite(name, a, (1, 2))) for name, a in (("X", X), ("Y", Y)))
    same_length(X_batch=len(x), Y_batch=len(y))
    length = same_length(X_length=x.shape[1], Y_length=y.shape[1])
    scores = queries @ keys / np.sqrt(width) * x[:, :, None] * x[:, None, :] + checked_bias(score_bias, len(x), length)
    attention = SOFTMAX.value(scores)
    first = np.einsum("bij,bj->bi", attention, x)
    away = x[:, None, :] - first[:, :, None]
    second, third = np.einsum("bij,bij->bi", attention, away**2), np.einsum("bij,bij->bi", attention, away**3)
    residual = value * first - y
    root = float(np.sqrt(width))
    alpha = float(np.mean(first**2))
    beta = float(np.mean((value * first + residual) * x * second)) / root
    gamma = float(np.mean(value * residual * x * second)) / root
    zeta = float(np.mean(value**2 * (x * second) ** 2 + value * residual * x**2 * third)) / width
    norms = float(queries @ queries), float(keys @ keys), float(queries @ keys)
    return AttentionScalars(alpha, beta, gamma, zeta, *norms, width, (first, second, third))
