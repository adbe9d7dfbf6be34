"""ReLU networks: scalar inputs cell by cell (Theorem 3.4), and any input through coupled cells."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from closed_form.closed_form_truth import check, many, seeds, tensor
from hesscope import closed_form as cf


def relu_loss(x: np.ndarray, y: np.ndarray) -> Callable[..., torch.Tensor]:
    def loss(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        scalar = v.ndim == 2
        before = tensor(x)[:, None] * v[:, None] if scalar else tensor(x) @ v.mT
        output = (torch.relu(before) * w[:, None]).sum(-1) if scalar else torch.relu(before) @ w.mT
        return ((output - tensor(y)) ** 2).sum() / (2 * len(y))

    return loss


@many
@given(
    seeds,
    st.integers(1, 6),
    st.integers(1, 5),
    st.sampled_from(
        ["", "", "", "x>0", "v<0", "no active", "x=0", "some v=0", "some x=0", "fitted", "w=v", "one each"]
    ),
)
def test_scalar_inputs_against_double_backward(seed: int, m: int, n: int, edge: str) -> None:
    rng = np.random.default_rng(seed)
    w, v, x, y = rng.normal(size=m), rng.normal(size=m), rng.normal(size=n), rng.normal(size=n)
    x = {"x>0": abs(x), "no active": abs(x), "x=0": 0 * x, "some x=0": x * (np.arange(n) > 0)}.get(edge, x)
    v = {"v<0": -abs(v), "no active": -abs(v), "some v=0": v * (np.arange(m) > 0), "w=v": w}.get(edge, v)
    if edge == "one each":
        w, v = w[:2], np.array([1.3, -0.4])[: len(w[:2])]
    y = np.maximum(np.outer(x, v), 0) @ w if edge == "fitted" else y
    spectrum = cf.relu_network(w, v, x, y)
    check(spectrum, relu_loss(x, y), [v, w])
    residual = np.maximum(np.outer(x, v), 0) @ w - y
    for sign, name in ((1, "+ cell"), (-1, "- cell")):
        units, data = np.sign(v) == sign, np.sign(x) == sign
        bulk = sorted((b.value, b.multiplicity) for b in spectrum.bulk if b.source == name)
        if units.sum() > 1 and data.any():
            d = abs(np.sum((x * residual)[data]) / n)
            np.testing.assert_allclose([value for value, _ in bulk], [-d, d], atol=1e-12 * (1 + d))
            assert [count for _, count in bulk] == [units.sum() - 1] * 2
        else:
            assert not bulk


def test_theorem_3_4_from_cell_quantities() -> None:
    """The printed outliers hold with every cell sum divided by n: n_c/n times Λ of the cell's own averages."""
    rng = np.random.default_rng(5)
    w, v, x, y = rng.normal(size=12), rng.normal(size=12), rng.normal(size=9), rng.normal(size=9)
    spectrum = cf.relu_network(w, v, x, y)
    predicted = []
    for sign in (1, -1):
        units, data = sign * v > 0, sign * x > 0
        share = data.sum() / x.size
        cell = cf.linear_network(w[units], v[units], x[data], y[data])
        predicted += (share * cell.outliers).tolist()
    np.testing.assert_allclose(spectrum.outliers, np.sort(predicted), rtol=1e-12)


@many
@given(
    seeds,
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(["", "", "shared cells", "some v=0", "no active", "fitted"]),
)
def test_any_inputs_through_cells(seed: int, inputs: int, outputs: int, m: int, n: int, edge: str) -> None:
    rng = np.random.default_rng(seed)
    w, v = rng.normal(size=(outputs, m)), rng.normal(size=(m, inputs))
    x, y = rng.normal(size=(n, inputs)), rng.normal(size=(n, outputs))
    if edge == "shared cells":
        v = v[:1] + 1e-3 * v
    if edge == "some v=0":
        v = v * (np.arange(m) > 0)[:, None]
    if edge == "no active":
        x, v = abs(x), -abs(v)
    y = np.maximum(x @ v.T, 0) @ w.T if edge == "fitted" else y
    check(cf.relu_network(w, v, x, y), relu_loss(x, y), [v, w])


def test_wide_networks_with_shared_cells_have_few_outliers() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(4, 2)), rng.normal(size=4)
    counts = []
    for m in (200, 2000):
        spectrum = cf.relu_network(rng.normal(size=m), rng.normal(size=(m, 2)), x, y)
        counts.append(spectrum.outliers.size)
        assert spectrum.eigenvalues.size == 3 * m
    assert counts[0] == counts[1] <= 8 * 5
