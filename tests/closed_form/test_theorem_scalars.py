"""The numbers of Theorem 3.5 and its remarks, against dense Hessians."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hesscope import closed_form as cf
from hesscope.errors import InputError


def _draw(seed: int, width: int = 4, batch: int = 3, length: int = 5) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, batch, length))
    return rng.normal(size=1), *rng.normal(size=(2, width)), x, y


def _dense(value: np.ndarray, queries: np.ndarray, keys: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    xs, ys = torch.as_tensor(x), torch.as_tensor(y)

    def loss(flat: torch.Tensor) -> torch.Tensor:
        v, q, k = flat[0], *flat[1:].chunk(2)
        scores = (q @ k) / len(queries) ** 0.5 * xs[:, :, None] * xs[:, None, :]
        out = v * (torch.softmax(scores, -1) @ xs[:, :, None])[:, :, 0]
        return ((out - ys) ** 2).mean() / 2

    point = torch.as_tensor(np.concatenate([value, queries, keys]))
    return np.asarray(torch.autograd.functional.hessian(loss, point))


@pytest.mark.parametrize("seed", range(6))
def test_roots_bounds_and_blocks(seed: int) -> None:
    drawn = _draw(seed)
    scalars, dense = cf.attention_scalars(*drawn), _dense(*drawn)
    values = np.linalg.eigvalsh(dense)
    bulk = sorted(values, key=lambda v: abs(abs(v) - abs(scalars.gamma)))[: 2 * (scalars.key_width - 1)]
    outliers = np.sort([v for v in values if v not in bulk])
    scale = np.abs(values).max()
    assert np.abs(np.abs(bulk) - abs(scalars.gamma)).max() <= 1e-12 * scale
    assert scalars.outliers == pytest.approx(outliers, abs=1e-9 * scale)
    assert scalars.trace == pytest.approx(values.sum(), rel=1e-12)
    low, high = scalars.outlier_bounds
    assert low - 1e-12 * scale <= outliers[0]
    assert outliers[-1] <= high + 1e-12 * scale
    low, high = scalars.largest_outlier_bounds
    assert low - 1e-12 * scale <= outliers[-1] <= high + 1e-12 * scale
    assert scalars.condition_bound <= np.abs(values).max() / np.abs(values).min() * (1 + 1e-9)
    block = np.linalg.eigvalsh(dense[1:, 1:])
    for root in (*scalars.query_key_outliers, scalars.gamma, -scalars.gamma):
        assert np.abs(block - root).min() <= 1e-10 * scale


def test_without_a_residual_the_cubic_is_a_quadratic() -> None:
    value, queries, keys, x, y = _draw(1)
    fitted = value * cf.attention_scalars(value, queries, keys, x, y).moments[0]
    scalars = cf.attention_scalars(value, queries, keys, x, fitted)
    assert abs(scalars.gamma) < 1e-15
    values = np.linalg.eigvalsh(_dense(value, queries, keys, x, fitted))
    found = np.sort(np.abs(values))[::-1][:2]
    assert np.sort(np.abs(scalars.outliers_without_residual))[::-1] == pytest.approx(found, rel=1e-9)


def test_a_sink_and_a_single_key() -> None:
    value, queries, keys, x, y = _draw(2, width=1)
    bias = np.zeros((5, 5))
    bias[:, 0] = 3.0
    plain, sink = (cf.attention_scalars(value, queries, keys, x, y, b) for b in (None, bias))
    assert np.abs(sink.moments[1]).mean() < np.abs(plain.moments[1]).mean()
    top = cf.self_attention(value, queries, keys, x, y, bias).outliers
    assert sink.outliers == pytest.approx(top, abs=1e-9)
    with pytest.raises(InputError, match="d_K of at least 2"):
        _ = plain.condition_bound
