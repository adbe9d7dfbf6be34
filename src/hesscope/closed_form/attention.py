"""One self-attention layer: the loss sees queries and keys only through B = W_Q W_Kᵀ."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import real_array, shown
from ..errors import refuse
from ..measure import Array
from ._inputs import finite, same_length
from .coupled import couple
from .products import WeightProduct
from .row_activation import SOFTMAX, RowActivation
from .spectrum import ClosedFormSpectrum


def self_attention(
    w_V: ArrayLike,
    w_Q: ArrayLike,
    w_K: ArrayLike,
    X: ArrayLike,
    Y: ArrayLike,
    score_bias: ArrayLike | None = None,
    activation: RowActivation = SOFTMAX,
) -> ClosedFormSpectrum:
    """All eigenpairs of ∇²(1/2BL) Σ |a(X w_Q w_Kᵀ Xᵀ/√d_K + score_bias) X w_V − Y|² over (w_V, w_Q, w_K).

    Embedding dimension 1: w_V a number, w_Q and w_K (d_K,), X and Y (L,) or a batch (B, L); the bulk is ±γ (d_K − 1
    times each) and there are three outliers. Embedding dimension d: w_V (d, e), w_Q and w_K (d, d_K), X (L, d) or
    (B, L, d), Y (..., e); at most 2d(2d − 1) + d e outliers, whatever d_K is.
    `score_bias` (L, L) or (B, L, L) is a mask (−inf allowed) or an attention sink; `activation` any RowActivation.
    Cost: O(B L² d²) beside the eigenproblem of that size. Reference: "Cracking the Hessian", Theorem 3.5.
    """
    if not isinstance(activation, RowActivation):
        refuse("activation must be a RowActivation", shown(activation), "Use hs.closed_form.SOFTMAX or LINEAR.")
    keys, queries, values = finite("w_K", w_K, (1, 2)), finite("w_Q", w_Q, (1, 2)), finite("w_V", w_V, (0, 1, 2))
    if keys.shape != queries.shape:
        refuse("w_Q and w_K must have the same shape", f"{queries.shape} and {keys.shape}", "Check which axis is d_K.")
    scalar = keys.ndim == 1
    x, y = (finite(name, a, (1, 2) if scalar else (2, 3)) for name, a in (("X", X), ("Y", Y)))
    order = (("w_V", values.shape), ("w_Q", queries.shape), ("w_K", keys.shape))
    if scalar:
        keys, queries, x, y = keys[None], queries[None], x[..., None], y[..., None]
        values = values.reshape(1, -1)
    x, y = (a if a.ndim == 3 else a[None] for a in (x, y))
    if values.ndim != 2:
        refuse(
            "w_V must be (d, e) when the embedding dimension is not 1",
            f"shape {values.shape}",
            "Add an axis for one output: w_V[:, None].",
        )
    same_length(X_batch=len(x), Y_batch=len(y))
    length = same_length(X_length=x.shape[1], Y_length=y.shape[1])
    width = same_length(w_V_rows=values.shape[0], w_Q_rows=len(queries), X_features=x.shape[2])
    same_length(w_V_columns=values.shape[1], Y_features=y.shape[2])
    scores = x @ (queries @ keys.T / np.sqrt(keys.shape[1])) @ x.swapaxes(1, 2) + checked_bias(
        score_bias, len(x), length
    )
    slope, curvature = _through_scores(scores, x, y, values, activation, 1.0 / np.sqrt(keys.shape[1]))
    starts = values.size + keys.shape[1] * np.arange(2 * width)
    product = WeightProduct("queries and keys", queries, keys, slope, starts, np.ones_like(starts))
    parts = couple([product], curvature, np.arange(values.size))
    return ClosedFormSpectrum(f"self-attention ({activation.name})", parts, order)


def _through_scores(
    scores: Array, x: Array, y: Array, values: Array, activation: RowActivation, scale: float
) -> tuple[Array, Array]:
    """∂ℓ/∂B, and ∂²ℓ over (B, w_V)."""
    batch, length, width = x.shape
    outputs, count, split = values.shape[1], batch * length, width * width
    mixed = activation.value(scores) @ x  # (b, i, c): what each position attends to
    residual = (mixed @ values - y).reshape(count, outputs)
    features, places, flat = x.swapaxes(1, 2)[:, None], x[:, None], x.reshape(count, width)
    # How the attended mixture moves with each entry of B: (n, c, p, q), n running over all positions.
    pulled = (activation.pullback(scores[:, :, None], features) @ places).reshape(count, width, 1, width)
    moves = scale * flat[:, None, :, None] * pulled
    to_scores = np.einsum("ncpq,ce->nepq", moves, values).reshape(-1, split)
    to_values = np.einsum("nc,ef->necf", mixed.reshape(count, width), np.eye(outputs)).reshape(len(to_scores), -1)
    jacobian = np.concatenate([to_scores, to_values], axis=1)
    curvature = jacobian.T @ jacobian
    weights = residual.reshape(batch, length, outputs) @ values.T @ x.swapaxes(1, 2)
    bent = (activation.bend(scores[:, :, None], weights[:, :, None], features) @ places).reshape(count, split)
    twice = (flat[:, :, None] * flat[:, None, :]).reshape(count, split)
    second = (twice.T @ bent).reshape(width, width, width, width).swapaxes(1, 2)  # (p, r, q, s) -> (p, q, r, s)
    curvature[:split, :split] += scale**2 * second.reshape(split, split)
    cross = np.einsum("ncpq,ne->pqce", moves, residual).reshape(split, -1)
    curvature[:split, split:] += cross
    curvature[split:, :split] += cross.T
    slope = (to_scores.T @ residual.reshape(-1)).reshape(width, width)
    return slope / count, curvature / count


def checked_bias(score_bias: ArrayLike | None, batch: int, length: int) -> Array:
    if score_bias is None:
        return np.zeros((length, length))
    bias = real_array("score_bias", score_bias)
    shapes = ((length, length), (1, length, length), (batch, length, length))
    if bias.shape not in shapes or np.isnan(bias).any() or (bias == np.inf).any():
        refuse(
            f"score_bias must be ({length}, {length}) or a batch of {batch} of them, with finite numbers or -inf",
            f"shape {bias.shape}",
            "Add it to the scores before the activation: 0 keeps, -inf masks.",
        )
    if np.isneginf(bias).all(axis=-1).any():
        refuse("every row of score_bias must keep at least one position", "a row of -inf", "Unmask the diagonal.")
    return bias
