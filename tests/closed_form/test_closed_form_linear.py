"""Linear networks: scalar (Theorems 3.1-3.3), any size, with a bias (Theorem B.1) and separable (Corollaries B.1-B.3)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from closed_form.closed_form_truth import check, many, scales, seeds, some, tensor
from hesscope import closed_form as cf
from hesscope.errors import InputError


def half_mse(prediction: torch.Tensor, target: np.ndarray) -> torch.Tensor:
    return ((prediction - tensor(target)) ** 2).sum() / (2 * len(target))


def dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum(-1, keepdim=True)


@many
@given(
    seeds,
    st.integers(1, 5),
    st.integers(1, 4),
    scales,
    st.sampled_from(["", "", "", "x=0", "w=v", "w=-v", "w~v", "v=0", "fitted", "nearly fitted", "y=0"]),
)
def test_scalar_network_against_double_backward(seed: int, m: int, n: int, scale: float, edge: str) -> None:
    rng = np.random.default_rng(seed)
    w, v, x, y = scale * rng.normal(size=m), rng.normal(size=m), rng.normal(size=n), rng.normal(size=n)
    x = 0 * x if edge == "x=0" else x
    v = {"w=v": w, "w=-v": -w, "w~v": w * (1 + 1e-9 * v), "v=0": 0 * v}.get(edge, v)
    y = {"fitted": (w @ v) * x, "nearly fitted": (w @ v) * x + 1e-9 * y, "y=0": 0 * y}.get(edge, y)
    spectrum = cf.linear_network(w, v, x, y)
    check(spectrum, lambda v_, w_: half_mse(dot(w_, v_) * tensor(x), y), [v, w])
    d = np.mean(x * ((w @ v) * x - y))
    assert spectrum.outliers.size == 2
    assert {(b.multiplicity, round(b.value / abs(d), 9)) for b in spectrum.bulk if d} <= {(m - 1, 1.0), (m - 1, -1.0)}
    if m >= 2:
        assert spectrum.eigenvalues[0] == pytest.approx(-abs(d), rel=1e-9, abs=1e-13 * spectrum.sharpness)


@many
@given(
    seeds,
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(["", "", "", "fitted", "rank one", "one repeated unit", "equal slopes", "x=0"]),
)
def test_any_input_and_output_size_against_double_backward(
    seed: int, inputs: int, outputs: int, m: int, n: int, edge: str
) -> None:
    rng = np.random.default_rng(seed)
    w, v = rng.normal(size=(outputs, m)), rng.normal(size=(m, inputs))
    x, y = rng.normal(size=(n, inputs)), rng.normal(size=(n, outputs))
    if edge == "rank one":
        x, y = np.outer(x[:, 0], np.ones(inputs)), np.outer(y[:, 0], np.ones(outputs))
    if edge == "one repeated unit":
        w, v = np.repeat(w[:, :1], m, axis=1), np.repeat(v[:1], m, axis=0)
    if edge == "equal slopes":
        x = np.eye(inputs)
        y = x @ v.T @ w.T + np.eye(inputs, outputs)
    x = 0 * x if edge == "x=0" else x
    y = x @ v.T @ w.T if edge == "fitted" else y
    check(cf.linear_network(w, v, x, y), lambda v_, w_: half_mse(tensor(x) @ v_.mT @ w_.mT, y), [v, w])


def test_outliers_do_not_depend_on_the_width() -> None:
    rng = np.random.default_rng(0)
    for inputs, outputs in [(1, 1), (3, 2), (2, 3), (4, 4)]:
        many = max(inputs, outputs)
        few = min(inputs, outputs)
        for m in (20, 400):
            spectrum = cf.linear_network(
                rng.normal(size=(outputs, m)),
                rng.normal(size=(m, inputs)),
                rng.normal(size=(9, inputs)),
                rng.normal(size=(9, outputs)),
            )
            assert spectrum.outliers.size == few * (3 * many + few - 2)


@many
@given(
    seeds, st.integers(1, 5), st.integers(1, 5), scales, st.sampled_from(["", "", "fitted", "b=0", "w=0", "v=b", "x=0"])
)
def test_bias_network_needs_no_condition(seed: int, m: int, n: int, scale: float, edge: str) -> None:
    rng = np.random.default_rng(seed)
    w, v, b = scale * rng.normal(size=m), rng.normal(size=m), rng.normal(size=m)
    x, y = rng.normal(size=n), rng.normal(size=n)
    b = {"b=0": 0 * b, "v=b": v}.get(edge, b)
    w = 0 * w if edge == "w=0" else w
    x = 0 * x if edge == "x=0" else x
    y = (w @ v) * x + w @ b if edge == "fitted" else y
    spectrum = cf.linear_network_with_bias(w, v, b, x, y)
    check(spectrum, lambda w_, v_, b_: half_mse(dot(w_, v_) * tensor(x) + dot(w_, b_), y), [w, v, b])
    if m >= 3:
        assert sorted(bulk.multiplicity for bulk in spectrum.bulk) == [m - 2, m - 2, m - 1]


def theorem_b1_case(seed: int, m: int, n: int) -> tuple[np.ndarray, ...]:
    """Weights and data that meet every condition of Theorem B.1."""
    rng = np.random.default_rng(seed)
    frame = np.linalg.qr(rng.normal(size=(m, 2))).Q * rng.uniform(0.3, 2)
    ones = np.ones((n, 1))
    data = np.linalg.qr(np.concatenate([ones, rng.normal(size=(n, 2))], axis=1)).Q[:, 1:] * np.sqrt(n)
    return rng.normal(size=m), frame[:, 0], frame[:, 1], data[:, 0], data[:, 1] * rng.uniform(0, 2)


@some
@given(seeds, st.integers(3, 6), st.integers(3, 6))
def test_theorem_b1_where_its_conditions_hold(seed: int, m: int, n: int) -> None:
    w, v, b, x, y = theorem_b1_case(seed, m, n)
    spectrum = cf.linear_network_with_bias(w, v, b, x, y, printed=True)
    check(spectrum, lambda w_, v_, b_: half_mse(dot(w_, v_) * tensor(x) + dot(w_, b_), y), [w, v, b])
    residual = (w @ v) * x + w @ b - y
    square = np.mean(residual * x) ** 2 + np.mean(residual) ** 2
    norms = v @ v + w @ w
    pair = norms / 2 + np.array([-0.5, 0.5]) * np.sqrt(norms**2 + 12 * square)
    triple = np.roots([1, -norms, -square, square * (w @ w)]).real
    tolerance = 1e-9 * spectrum.sharpness
    np.testing.assert_allclose(spectrum.outliers, np.sort([*pair, *triple]), atol=tolerance)
    np.testing.assert_allclose(
        [bulk.value for bulk in spectrum.bulk], [-np.sqrt(square), 0, np.sqrt(square)], atol=tolerance
    )


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ("b", "<v, b> = 0"),
        ("2b", "|v| = |b|"),
        ("2x", "mean(x^2) = 1"),
        ("x", "mean(x) = 0"),
        ("y", "mean(y) = 0"),
        ("yx", "mean(y x) = 0"),
    ],
)
def test_theorem_b1_names_the_condition_that_fails(broken: str, named: str) -> None:
    w, v, b, x, y = theorem_b1_case(3, 5, 6)
    b = {"b": b + 0.1 * v, "2b": 2 * b}.get(broken, b)
    y = {"y": y + 0.1, "yx": y + 0.1 * x}.get(broken, y)
    x = {"x": x + 0.1, "2x": 2 * x}.get(broken, x)
    with pytest.raises(InputError, match="printed=True") as error:
        cf.linear_network_with_bias(w, v, b, x, y, printed=True)
    assert f"{named} fails by" in str(error.value)
    assert cf.linear_network_with_bias(w, v, b, x, y).size == 15


@many
@given(seeds, st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.sampled_from(["", "decorrelated", "w=v"]))
def test_separable_inputs(seed: int, heads: int, m: int, n: int, edge: str) -> None:
    rng = np.random.default_rng(seed)
    n = max(n, heads) if edge == "decorrelated" else n
    w, v, x, y = (
        rng.normal(size=(heads, m)),
        rng.normal(size=(heads, m)),
        rng.normal(size=(n, heads)),
        rng.normal(size=n),
    )
    v = w if edge == "w=v" else v
    x = np.linalg.qr(x).Q * rng.uniform(0.5, 2, size=heads) if edge == "decorrelated" else x
    spectrum = cf.separable_inputs(w, v, x, y)
    pieces = [p[h] for h in range(heads) for p in (v, w)]

    def loss(*p: torch.Tensor) -> torch.Tensor:
        return half_mse(sum(dot(p[2 * h], p[2 * h + 1]) * tensor(x[:, h]) for h in range(heads)), y)

    check(spectrum, loss, pieces)
    if edge == "decorrelated":  # Corollary B.1: the union of scalar networks, each with its own part of the target
        rest = y[:, None] - x @ np.sum(w * v, axis=1)[:, None] + x * np.sum(w * v, axis=1)
        union = [cf.linear_network(w[h], v[h], x[:, h], rest[:, h]).eigenvalues for h in range(heads)]
        np.testing.assert_allclose(
            spectrum.eigenvalues, np.sort(np.concatenate(union)), atol=1e-10 * np.abs(spectrum.eigenvalues).max()
        )


@many
@given(seeds, st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.sampled_from(["", "fitted", "x=0"]))
def test_separable_outputs(seed: int, heads: int, m: int, n: int, edge: str) -> None:
    rng = np.random.default_rng(seed)
    w, v, x, y = (
        rng.normal(size=(heads, m)),
        rng.normal(size=(heads, m)),
        rng.normal(size=n),
        rng.normal(size=(n, heads)),
    )
    x = 0 * x if edge == "x=0" else x
    y = np.outer(x, np.sum(w * v, axis=1)) if edge == "fitted" else y

    def loss(*p: torch.Tensor) -> torch.Tensor:
        return half_mse(torch.stack([dot(p[2 * h], p[2 * h + 1]) * tensor(x) for h in range(heads)], dim=2), y)

    spectrum = cf.separable_outputs(w, v, x, y)
    check(spectrum, loss, [p[h] for h in range(heads) for p in (v, w)])
    assert spectrum.outliers.size == 2 * heads
