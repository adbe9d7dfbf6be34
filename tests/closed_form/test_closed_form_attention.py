"""Self-attention: embedding dimension 1 (Theorem 3.5), batches, masks, sinks, other activations, larger embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from closed_form.closed_form_truth import check, many, seeds, some, tensor
from hesscope import closed_form as cf
from hesscope.errors import InputError

SIGMOID = cf.elementwise(
    "sigmoid",
    lambda z: 1 / (1 + np.exp(-z)),
    lambda z: np.exp(-z) / (1 + np.exp(-z)) ** 2,
    lambda z: np.exp(-z) * (np.exp(-z) - 1) / (1 + np.exp(-z)) ** 3,
)
COLD = cf.RowActivation(
    "softmax at temperature 1/2",
    lambda z: cf.SOFTMAX.value(2 * z),
    lambda z, c: 2 * cf.SOFTMAX.pullback(2 * z, c),
    lambda z, c, t: 4 * cf.SOFTMAX.bend(2 * z, c, t),
)
TORCH = {
    "softmax": lambda z: torch.softmax(z, -1),
    "linear": lambda z: z / z.shape[-1],
    "sigmoid": lambda z: torch.sigmoid(z) / z.shape[-1],
    "softmax at temperature 1/2": lambda z: torch.softmax(2 * z, -1),
}


def attention_loss(x: np.ndarray, y: np.ndarray, bias: np.ndarray | None, name: str) -> Callable[..., torch.Tensor]:
    """x, y: (B, L) or (L,) with scalar weights; (B, L, d) or (L, d) with matrices."""

    def loss(values: torch.Tensor, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        scalar = queries.ndim == 2
        feature = (1,) if scalar else np.shape(x)[-1:]
        xs = tensor(x).reshape(-1, np.shape(x)[-1 if scalar else -2], *feature)
        ys = tensor(y).reshape(*xs.shape[:2], -1)
        if scalar:
            values, queries, keys = values[:, None, None], queries[:, None], keys[:, None]
        values, bilinear = values[:, None], (queries @ keys.mT / queries.shape[-1] ** 0.5)[:, None]
        scores = xs @ bilinear @ xs.mT
        attention = TORCH[name](scores if bias is None else scores + tensor(bias))
        return ((attention @ xs @ values - ys) ** 2).sum() / (2 * xs.shape[0] * xs.shape[1])

    return loss


def causal(length: int) -> np.ndarray:
    return np.where(np.tri(length) > 0, 0.0, -np.inf)


def sink(length: int, strength: float = 2.0) -> np.ndarray:
    return strength * (np.arange(length) == 0) * np.ones((length, 1))


@many
@given(
    seeds,
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([None, None, causal, sink]),
    st.sampled_from(["", "", "", "w_V=0", "fitted", "w_K=w_Q", "w_Q=0", "x=0", "constant x"]),
)
def test_embedding_one_against_double_backward(
    seed: int, width: int, length: int, batch: int, bias: Callable[[int], np.ndarray] | None, edge: str
) -> None:
    rng = np.random.default_rng(seed)
    shape = (batch, length) if batch else (length,)
    x, y = rng.normal(size=shape), rng.normal(size=shape)
    value, queries, keys = np.float64(rng.normal()), rng.normal(size=width), rng.normal(size=width)
    value = 0 * value if edge == "w_V=0" else value
    queries = {"w_K=w_Q": keys, "w_Q=0": 0 * queries}.get(edge, queries)
    x = {"x=0": 0 * x, "constant x": np.full(shape, 0.7)}.get(edge, x)
    table = bias(length) if bias else None
    if edge == "fitted":
        scores = queries @ keys / width**0.5 * x[..., :, None] * x[..., None, :] + (0 if table is None else table)
        y = value * (cf.SOFTMAX.value(scores) @ x[..., None])[..., 0]
    spectrum = cf.self_attention(value, queries, keys, x, y, score_bias=table)
    check(spectrum, attention_loss(x, y, table, "softmax"), [value, queries, keys])
    # A curvature that happens to decouple (for instance w_V = 0 with x = 0) leaves w_V on its own, still an outlier.
    assert spectrum.outliers.size == 3
    assert sum(b.multiplicity for b in spectrum.bulk) == 2 * (width - 1)


@some
@given(
    seeds,
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([cf.LINEAR, SIGMOID, COLD]),
    st.booleans(),
)
def test_any_row_wise_activation(
    seed: int, width: int, length: int, activation: cf.RowActivation, with_sink: bool
) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, length)), rng.normal(size=(2, length))
    value, queries, keys = np.float64(rng.normal()), rng.normal(size=width), rng.normal(size=width)
    bias = sink(length) if with_sink else None
    spectrum = cf.self_attention(value, queries, keys, x, y, bias, activation)
    check(spectrum, attention_loss(x, y, bias, activation.name), [value, queries, keys])


@many
@given(
    seeds,
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([None, causal, sink]),
    st.sampled_from([cf.SOFTMAX, SIGMOID]),
)
def test_larger_embeddings(
    seed: int,
    inputs: int,
    outputs: int,
    width: int,
    length: int,
    batch: int,
    bias: Callable[[int], np.ndarray] | None,
    activation: cf.RowActivation,
) -> None:
    rng = np.random.default_rng(seed)
    shape = (batch, length) if batch else (length,)
    x, y = rng.normal(size=(*shape, inputs)), rng.normal(size=(*shape, outputs))
    values, queries, keys = (rng.normal(size=s) for s in [(inputs, outputs), (inputs, width), (inputs, width)])
    table = bias(length) if bias and activation is cf.SOFTMAX else None
    spectrum = cf.self_attention(values, queries, keys, x, y, table, activation)
    check(spectrum, attention_loss(x, y, table, activation.name), [values, queries, keys])


def test_outliers_of_a_larger_embedding_do_not_depend_on_the_key_width() -> None:
    rng = np.random.default_rng(2)
    d, e, x, y = 3, 2, rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 5, 2))
    for width in (20, 200):
        spectrum = cf.self_attention(
            rng.normal(size=(d, e)), rng.normal(size=(d, width)), rng.normal(size=(d, width)), x, y
        )
        assert spectrum.outliers.size == 2 * d * (2 * d - 1) + d * e


def test_theorem_3_5_scalars_and_the_corrected_bounds() -> None:
    """The paper's α, β, γ, ζ give the cubic, and ξ with squared norms bounds the outliers."""
    rng = np.random.default_rng(0)
    printed_fails = 0
    for _ in range(200):
        width, length = 4, 5
        x, y, value = rng.normal(size=length), rng.normal(size=length), rng.normal()
        queries, keys = rng.normal(size=width), rng.normal(size=width)
        a = cf.SOFTMAX.value(queries @ keys / 2 * np.outer(x, x))
        m1 = a @ x
        spread = x - m1[:, None]
        m2, m3 = np.sum(a * spread**2, 1), np.sum(a * spread**3, 1)
        delta = value * m1 - y
        alpha = m1 @ m1 / length
        beta = (value * m1 + delta) @ (x * m2) / (length * 2)
        gamma = value * delta @ (x * m2) / (length * 2)
        zeta = (value**2 * np.sum((x * m2) ** 2) + value * delta @ (x * x * m3)) / (length * 4)
        qq, kk, qk = queries @ queries, keys @ keys, queries @ keys
        trace = alpha + zeta * (kk + qq)
        linear = (beta**2 - alpha * zeta) * (kk + qq) + 2 * gamma * zeta * qk + gamma**2
        constant = 2 * gamma * (beta**2 - alpha * zeta) * qk - alpha * gamma**2
        spectrum = cf.self_attention(value, queries, keys, x, y)
        for root in spectrum.outliers:
            # An eigenvalue is exact to rounding of the norm, so the cubic is zero to that times its slope.
            slope = 3 * root**2 + 2 * abs(trace * root) + abs(linear)
            value_there = -(root**3) + trace * root**2 + linear * root + constant
            assert abs(value_there) <= 1e-13 * (slope * np.abs(spectrum.outliers).max() + abs(constant))
        xi = 2 / 3 * np.sqrt(3 * linear + trace**2)
        top = spectrum.outliers[-1]
        assert trace / 3 + xi / 2 - 1e-12 <= top <= trace / 3 + xi + 1e-12
        assert spectrum.sharpness == pytest.approx(max(top, abs(gamma)), rel=1e-12)
        # The printed ξ has norms where squares belong.
        inside = 3 * linear + (zeta * np.sqrt(kk) + zeta * np.sqrt(qq) + alpha) ** 2
        printed = trace / 3 + 2 / 3 * np.sqrt(max(inside, 0))
        printed_fails += top > printed * (1 + 1e-9)
    assert printed_fails > 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w_K": np.ones(3)}, "same shape"),
        ({"Y": np.ones(4)}, "same length"),
        ({"score_bias": np.ones((2, 2))}, "score_bias"),
        ({"score_bias": np.full((3, 3), -np.inf)}, "keep at least one"),
        ({"X": [1.0, np.nan, 2.0]}, "finite"),
        ({"w_V": [1.0, 2.0]}, "same length"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    good = {"w_V": 1.0, "w_Q": np.ones(2), "w_K": np.ones(2), "X": np.arange(3.0), "Y": np.ones(3)}
    with pytest.raises(InputError, match=message):
        cf.self_attention(**(good | change))
