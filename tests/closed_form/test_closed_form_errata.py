"""Each test decides one row of docs/errata/cracking.md: the printed formula fails, the corrected one holds."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from closed_form.closed_form_truth import double_backward, seeds, some, tensor
from hesscope import closed_form as cf


def scalar_case(seed: int, m: int = 4, n: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=m), rng.normal(size=m), rng.normal(size=n), rng.normal(size=n)


def residual_covariance(w: np.ndarray, v: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(x * ((w @ v) * x - y)))


def miss(hessian: np.ndarray, value: float, vector: np.ndarray) -> float:
    """|Hz − λz| / (|H| |z|)."""
    size = np.linalg.norm(hessian, 2) * np.linalg.norm(vector)
    return float(np.linalg.norm(hessian @ vector - value * vector) / size)


@some
@given(seeds, st.integers(1, 5), st.sampled_from(["", "w=v", "x=0", "w=0"]))
def test_equation_2_is_the_sharpness(seed: int, m: int, edge: str) -> None:
    w, v, x, y = scalar_case(seed, m)
    v, x, w = (w if edge == "w=v" else v), (0 * x if edge == "x=0" else x), (0 * w if edge == "w=0" else w)
    parts, spectrum = cf.sharpness_parts(w, v, x, y), cf.linear_network(w, v, x, y)
    tolerance = 1e-13 * abs(parts.sharpness)
    assert parts.sharpness == pytest.approx(spectrum.sharpness, abs=tolerance)
    assert parts.smaller_outlier == pytest.approx(spectrum.outliers[0], abs=4 * tolerance)


def test_non_collinearity_of_nearly_parallel_weights_keeps_its_digits() -> None:
    w = np.array([1.0, 2.0, -1.0])
    v = 3 * w + 1e-9 * np.array([2.0, 0.0, 2.0])  # the step is orthogonal to w
    parts = cf.sharpness_parts(w, v, [1.0], [0.0])
    assert parts.non_collinearity == pytest.approx(4 * 6 * 8e-18, rel=1e-6)


def test_smallest_eigenvalue_is_minus_the_absolute_residual_covariance() -> None:
    below = 0
    for seed in range(50):
        case = scalar_case(seed)
        d = residual_covariance(*case)
        lowest = cf.linear_network(*case).eigenvalues[0]
        assert lowest == pytest.approx(-abs(d), rel=1e-10)
        below += lowest < -d - 1e-9
    assert below > 10


def test_theorem_3_2_vectors_are_orthogonal_but_not_unit_and_may_vanish() -> None:
    w, v, x, y = scalar_case(0)
    d, spectrum = residual_covariance(w, v, x, y), cf.linear_network(w, v, x, y)
    low, high = (value * np.concatenate([w, v]) + d * np.concatenate([v, w]) for value in spectrum.outliers)
    assert miss(spectrum.hessian(), spectrum.outliers[0], low) < 1e-14
    assert miss(spectrum.hessian(), spectrum.outliers[1], high) < 1e-14
    assert abs(low @ high) < 1e-13 * np.linalg.norm(low) * np.linalg.norm(high)
    assert abs(np.linalg.norm(low) - 1) > 0.1
    same = cf.linear_network(w, w, x, y)  # w = v: the formula gives the zero vector for the outlier -d
    d = residual_covariance(w, w, x, y)
    vanished = np.abs(same.outliers + d).argmin()
    assert np.linalg.norm(same.outliers[vanished] * np.concatenate([w, w]) + d * np.concatenate([w, w])) < 1e-13


@pytest.mark.parametrize("sign", [1, -1])
def test_theorem_3_3_sign_is_that_of_bulk_times_residual_covariance(sign: float) -> None:
    w, v, x, y = scalar_case(1)
    y = y - sign * 3 * x  # shifts d = mean(x δ) by ±3 mean(x²)
    d = residual_covariance(w, v, x, y)
    assert np.sign(d) == sign
    hessian = cf.linear_network(w, v, x, y).hessian()
    c = np.random.default_rng(0).normal(size=4)
    for bulk in (d, -d):

        def vector(s: float) -> np.ndarray:
            axis = w + s * v
            half = c - axis * (axis @ c) / (axis @ axis)
            return np.concatenate([half, s * half])

        assert miss(hessian, bulk, vector(np.sign(bulk * d))) < 1e-14
        printed = miss(hessian, bulk, vector(np.sign(bulk)))
        assert (printed < 1e-14) == (d > 0)


def test_corollary_3_1_needs_the_full_bulk_vectors() -> None:
    """Iterates are orthogonal to (z, ±z) in R^2m, and θ_t stays in the first plane; z alone is not orthogonal to w."""
    w, v, x, y = scalar_case(2)
    spectrum = cf.linear_network(w, v, x, y)
    bulk = spectrum.eigenvectors()[:, np.isclose(np.abs(spectrum.eigenvalues), abs(residual_covariance(w, v, x, y)))]
    assert bulk.shape == (8, 6)
    for _ in range(20):
        assert np.abs(bulk.T @ np.concatenate([v, w])).max() < 1e-13
        d = residual_covariance(w, v, x, y)
        w, v = w - 0.1 * d * v, v - 0.1 * d * w
    assert np.abs(bulk[:4].T @ w).max() > 0.01


def test_theorem_3_4_vectors_need_the_share_of_the_cell() -> None:
    w, v, x, y = scalar_case(3, m=9, n=11)
    spectrum = cf.relu_network(w, v, x, y)
    units, data = v > 0, x > 0
    share = data.mean()
    residual = (w[units] @ v[units]) * x[data] - y[data]
    for value, source in zip(spectrum.outliers, spectrum.outlier_sources, strict=True):
        if source == "+ cell":

            def vector(d: float, value: float = value) -> np.ndarray:
                out = np.zeros(18)
                out[:9][units] = value * w[units] + d * v[units]
                out[9:][units] = d * w[units] + value * v[units]
                return out

            own = np.mean(x[data] * residual)
            assert miss(spectrum.hessian(), value, vector(share * own)) < 1e-14
            assert miss(spectrum.hessian(), value, vector(own)) > 1e-3


def sextic(w: np.ndarray, v: np.ndarray, b: np.ndarray, dx: float, d: float, bb: float) -> list[float]:
    """Coefficients of the printed expansion (89)-(98), with `bb` in the place of |b| of (92)."""
    vv, ww, wv, wb, vb = v @ v, w @ w, w @ v, w @ b, v @ b
    s, t, norm_b = dx**2 + d**2, d * wv + dx * wb, b @ b
    return [
        1.0,
        -(vv + norm_b + 2 * ww),
        -2 * s - 2 * (dx * wv + d * wb) + (vv + ww) * (bb + ww) - vb**2,
        s * (vv + norm_b + 3 * ww) + 2 * d * wb * (vv + ww) + 2 * dx * wv * (norm_b + ww) - 2 * vb * t,
        s**2
        + 2 * s * (dx * wv + d * wb)
        + 4 * dx * d * wv * wb
        - ((vv + ww) * ww * dx**2 + (norm_b + ww) * ww * d**2 + t**2 + 2 * vb * d * dx * ww),
        -(s**2 + 2 * dx**3 * wv + 2 * d**3 * wb + 2 * t * d * dx) * ww,
        0.0,
    ]


def test_bias_sextic_needs_the_square_of_b_and_one_minus_sign_for_three_lines() -> None:
    rng = np.random.default_rng(4)
    w, v, b = (rng.normal(size=6) for _ in range(3))
    x = rng.normal(size=8)
    x = (x - x.mean()) / x.std()
    y = rng.normal(size=8)
    residual = (w @ v) * x + w @ b - y
    spectrum = cf.linear_network_with_bias(w, v, b, x, y)
    dx, d = np.mean(residual * x), np.mean(residual)
    right = np.sort(np.roots(sextic(w, v, b, dx, d, b @ b)).real)
    # The sixth root is 0 and belongs to the bulk.
    np.testing.assert_allclose(np.delete(right, np.abs(right).argmin()), spectrum.outliers, rtol=1e-9)
    wrong = np.roots(sextic(w, v, b, dx, d, np.sqrt(b @ b)))
    assert np.abs(np.sort(wrong.real) - right).max() > 0.1


def test_viete_needs_a_clip_where_roots_meet() -> None:
    """The printed arccos leaves [-1, 1] at double roots; eigenvalues of the small matrix do not care."""
    outside = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        w = np.array([0.0, 0.0, 1.0]) * rng.uniform(0.1, 3)  # w ⟂ v, b: zero residual moments, a double root at 0
        v, b = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
        x = np.array([1.0, -1.0, 1.0, -1.0])
        norms, square = v @ v + w @ w, 0.0
        p = -square - norms**2 / 3
        q = -2 / 27 * norms**3 - (v @ v) * square / 3 + 2 / 3 * (w @ w) * square
        outside += abs(3 * q / (2 * p) * np.sqrt(-3 / p)) > 1
        spectrum = cf.linear_network_with_bias(w, v, b, x, 0 * x, printed=True)
        np.testing.assert_allclose(spectrum.outliers, [0, 0, 0, norms, norms], atol=1e-14 * norms)
    assert outside > 10


def test_attention_hessian_is_in_the_order_value_query_key() -> None:
    rng = np.random.default_rng(5)
    x, y, value, queries, keys = (
        rng.normal(size=3),
        rng.normal(size=3),
        rng.normal(),
        rng.normal(size=2),
        rng.normal(size=2),
    )
    spectrum = cf.self_attention(value, queries, keys, x, y)
    hessian = spectrum.hessian()
    np.testing.assert_allclose(hessian[0, 1:3] / keys, hessian[0, 3:5] / queries, rtol=1e-12)
    assert [name for name, _ in spectrum.parameter_order] == ["w_V", "w_Q", "w_K"]


def test_attention_cubic_coefficient_q() -> None:
    """27 q = -(2 S³ + 9 S B + 27 C): the printed bracket leaves 2γζ<k,q> + γ² outside the factor 9 S."""
    rng = np.random.default_rng(6)
    x, y, value, queries, keys = rng.normal(size=4), rng.normal(size=4), 1.3, rng.normal(size=3), rng.normal(size=3)
    spectrum = cf.self_attention(value, queries, keys, x, y)
    s = spectrum.outliers.sum()
    b = -sum(spectrum.outliers[i] * spectrum.outliers[j] for i, j in ((0, 1), (0, 2), (1, 2)))
    c = np.prod(spectrum.outliers)
    p, q = -b - s**2 / 3, -(2 * s**3 + 9 * s * b + 27 * c) / 27
    shifted = spectrum.outliers - s / 3
    assert np.abs(shifted**3 + p * shifted + q).max() < 1e-13 * abs(s) ** 3
    h = spectrum.hessian()
    gamma = spectrum.bulk[-1].value * np.sign(h[1, 3] - h[1, 1] * queries[0] / keys[0])
    zeta = h[1, 1] / keys[0] ** 2
    inside = 2 * gamma * zeta * (queries @ keys) + gamma**2
    printed = -(2 * s**3 + 9 * s * (b - inside) + inside + 27 * c) / 27
    assert abs(printed - q) > 1e-3 * abs(q)


def attention_scalars(spectrum: cf.ClosedFormSpectrum, keys: np.ndarray) -> tuple[float, float, float, float]:
    h = spectrum.hessian()
    return h[0, 0], h[0, 1] / keys[0], spectrum.bulk[-1].value, h[1, 1] / keys[0] ** 2


def test_remark_3_1_is_a_lower_bound_only_with_squared_norms() -> None:
    violated = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, y, value = rng.normal(size=4), rng.normal(size=4), 5 * rng.normal()
        queries, keys = 0.1 * rng.normal(size=2), 0.1 * rng.normal(size=2)
        spectrum = cf.self_attention(value, queries, keys, x, y)
        gamma = spectrum.bulk[-1].value
        s = spectrum.trace
        b = -(s**2 - np.sum(spectrum.outliers**2)) / 2
        xi = 2 / 3 * np.sqrt(3 * b + s**2)
        bound = (2 * s + 3 * xi) / (6 * abs(gamma))
        assert spectrum.condition_number >= bound * (1 - 1e-9)
        alpha, _, _, zeta = attention_scalars(spectrum, keys)
        lengths = np.linalg.norm(keys) + np.linalg.norm(queries)
        inside = 3 * b + (alpha + zeta * lengths) ** 2
        violated += spectrum.condition_number < (2 * s + 2 * np.sqrt(max(inside, 0))) / (6 * abs(gamma)) * (1 - 1e-9)
    assert violated > 0


def test_condition_number_is_not_monotone_in_the_key_and_query_norms() -> None:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=5), rng.normal(size=5)
    queries, keys = rng.normal(size=4), rng.normal(size=4)
    numbers = [cf.self_attention(1.0, t * queries, t * keys, x, y).condition_number for t in np.linspace(0.2, 3, 30)]
    assert (np.diff(numbers) > 0).any()
    assert (np.diff(numbers) < 0).any()


@pytest.mark.parametrize("target", [2.0, -2.0])
def test_appendix_c_phases_hold_in_the_ratio_for_both_signs(target: float) -> None:
    x = np.array([1.0, -0.5, 2.0])
    v = np.array([1.0, 0.0])
    wrong = 0
    for product in np.linspace(-5, 5, 41):
        w = np.array([product, 0.3])
        phase = cf.learning_phase(w, v, x, target * x)
        smaller, scale = phase.smaller_outlier, cf.sharpness_parts(w, v, x, target * x).sharpness
        assert (phase.name == "late") == (1 / 3 < product / target <= 1)
        assert smaller >= -1e-12 * scale if phase.name == "late" else smaller <= 1e-12 * scale
        printed_late = target / 3 <= product <= target
        wrong += printed_late != (smaller >= -1e-12 * scale)
    assert (wrong > 0) == (target < 0)


def test_phases_without_a_target_or_without_inputs() -> None:
    assert cf.learning_phase([1.0], [2.0], [1.0, -1.0], [1.0, 1.0]).name == "divergent"
    assert cf.learning_phase([0.0], [2.0], [1.0, -1.0], [1.0, 1.0]).ratio == 1.0
    with pytest.raises(ValueError, match="some x"):
        cf.learning_phase([1.0], [2.0], [0.0], [1.0])


@some
@given(seeds, st.integers(1, 4), st.integers(4, 6), st.booleans())
def test_two_eigenvalues_sum_to_trace_over_inputs_where_that_is_a_theorem(
    seed: int, inputs: int, m: int, aligned_target: bool
) -> None:
    rng = np.random.default_rng(seed)
    nu, s = rng.uniform(0.3, 2, size=2)
    v = np.linalg.qr(rng.normal(size=(m, inputs))).Q * np.sqrt(nu)
    w = rng.normal(size=m)
    x = np.linalg.qr(rng.normal(size=(inputs + 2, inputs))).Q * np.sqrt(s * (inputs + 2))
    a = v.T @ w
    share = rng.normal() if aligned_target else 0.0
    y = x @ (share * a) / s
    spectrum = cf.linear_network(w, v, x, y)
    e, length, ww = (s - share) * np.linalg.norm(a), np.linalg.norm(a), w @ w
    trace_share = s * (nu + ww)
    pair = trace_share / 2 + np.array([-0.5, 0.5]) * np.sqrt(trace_share**2 + 4 * (e**2 + 2 * s * e * length))
    triple = np.linalg.eigvalsh(  # of l³ - s(nu + W) l² - e² l + e² s W, as a symmetric matrix
        np.array([[s * nu, e, 0.0], [e, 0.0, 0.0], [0.0, 0.0, s * ww]]) + _couple_triple(s, nu, ww)
    )
    expected = [
        *pair,
        *np.repeat(triple, inputs - 1),
        *np.repeat([e, -e], m - inputs),
        *np.zeros((inputs - 1) * (m - 1)),
    ]
    scale = spectrum.sharpness
    cubic = np.abs(triple**3 - trace_share * triple**2 - e**2 * triple + e**2 * s * ww)
    assert cubic.max() <= 1e-12 * scale**3
    np.testing.assert_allclose(spectrum.eigenvalues, np.sort(expected), atol=1e-10 * scale)
    assert spectrum.trace / inputs == pytest.approx(pair.sum(), rel=1e-12)


def _couple_triple(s: float, nu: float, ww: float) -> np.ndarray:
    coupling = np.zeros((3, 3))
    coupling[0, 2] = coupling[2, 0] = s * np.sqrt(nu * ww)
    return coupling


def test_fitted_networks_on_white_inputs_have_sums_of_squared_singular_values() -> None:
    """D.3.3 bounds λ_max by one squared spectral norm; at zero residual it is the sum of both."""
    rng = np.random.default_rng(8)
    w, v = rng.normal(size=(3, 7)), rng.normal(size=(7, 2))
    x = np.linalg.qr(rng.normal(size=(9, 2))).Q * 3.0
    spectrum = cf.linear_network(w, v, x, x @ v.T @ w.T)
    sw, sv = np.linalg.svd(w)[1], np.linalg.svd(v)[1]
    sums = np.sort(np.add.outer(sw**2, sv**2).ravel())
    np.testing.assert_allclose(spectrum.eigenvalues[-6:], sums, rtol=1e-12)
    assert np.abs(spectrum.eigenvalues[:-6]).max() < 1e-12
    assert spectrum.sharpness > max(sw[0], sv[0]) ** 2 * 1.1


def test_trace_of_a_two_layer_network_counts_outputs_and_inputs() -> None:
    """D.4: tr H = tr(Σ) |W2|² + K |W1 Σ^½|², not D (|W1|² + |W2|²) unless Σ = I and K = D."""
    rng = np.random.default_rng(9)
    w, v, x, y = rng.normal(size=(3, 5)), rng.normal(size=(5, 2)), rng.normal(size=(9, 2)), rng.normal(size=(9, 3))
    covariance = x.T @ x / 9
    right = np.trace(covariance) * np.sum(w**2) + 3 * np.trace(v @ covariance @ v.T)
    hessian = double_backward(lambda v_, w_: ((tensor(x) @ v_.mT @ w_.mT - tensor(y)) ** 2).sum() / 18, [v, w])
    assert np.trace(hessian) == pytest.approx(right, rel=1e-12)
    assert abs(2 * (np.sum(w**2) + np.sum(v**2)) - right) > 0.05 * right


def test_relu_is_a_times_its_indicator() -> None:
    """Section 3.2 writes (a)₊ = 1{a > 0}; the theorem is about a 1{a > 0}."""
    w, v, x, y = scalar_case(10)
    step = double_backward(
        lambda v_, w_: (
            (((tensor(x)[:, None] * v_[:, None] > 0) * w_[:, None]).sum(-1) - tensor(y)).square().sum() / 12
            + 0 * v_.sum()
        ),
        [v, w],
    )
    assert np.abs(step - cf.relu_network(w, v, x, y).hessian()).max() > 0.01
    assert torch.relu(torch.tensor(0.0)) == 0
