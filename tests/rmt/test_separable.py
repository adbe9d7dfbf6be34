"""The separable law: closed forms, exact identities, and random populations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesscope.errors import InputError
from hesscope.measure import AtomicMeasure
from hesscope.rmt import GeneralisedMarchenkoPastur
from properties import examples
from rmt.law_integrals import total_mass

ONE = AtomicMeasure.of([1.0])


def atoms(values: st.SearchStrategy[float], most: int) -> st.SearchStrategy[AtomicMeasure]:
    pairs = st.lists(st.tuples(values, st.floats(0.05, 1.0)), min_size=1, max_size=most)
    return pairs.map(lambda rows: AtomicMeasure.of([r[0] for r in rows], [r[1] for r in rows]))


signed = st.floats(-4.0, 4.0).filter(lambda v: abs(v) > 1e-3) | st.just(0.0)
positive = st.floats(0.05, 10.0)
ratios = st.floats(0.02, 20.0)


@examples(35)
@given(atoms(signed, 6), atoms(positive, 4), ratios)
def test_every_law_converges_with_unit_mass(g: AtomicMeasure, t: AtomicMeasure, ratio: float) -> None:
    law = GeneralisedMarchenkoPastur(g, t, ratio)
    x = np.concatenate([np.linspace(a, b, 60)[1:-1] for a, b in law.support] or [np.array([0.5])])
    z = x.astype(complex)
    delta, e = law.fixed_point(z)
    residual = delta - ratio * (t.nodes / (np.multiply.outer(e, t.nodes) - z[:, None])) @ t.weights
    if law.support:
        assert (delta.imag > 0).all()
        assert np.abs(residual / delta).max() < 1e-9
    assert (law.density(x) >= 0).all()
    assert abs(total_mass(law) - 1.0) < 1e-6


@examples(25)
@given(atoms(signed, 5), atoms(positive, 3), ratios, st.floats(0.01, 0.99))
def test_cdf_quantile_and_edges_agree(g: AtomicMeasure, t: AtomicMeasure, ratio: float, q: float) -> None:
    law = GeneralisedMarchenkoPastur(g, t, ratio)
    x = float(law.quantile(q))
    width = 1e-9 * max(abs(x), 1e-6)
    assert float(law.cdf(x + width)) >= q - 1e-9
    assert float(law.cdf(x - width)) <= q + 1e-9
    for left, right in law.support:
        # The cdf at an edge is the level of the gap: the closed form must be continuous there.
        inside = law.cdf(np.array([left, right]) + np.array([1, -1]) * 1e-12 * (right - left))
        at_zero = law.mass_at_zero * ((np.array([left, right]) == 0) & np.array([True, False]))
        assert np.abs(inside - law.cdf(np.array([left, right]))).max() < 1e-6 + at_zero.max()


@examples(20)
@given(atoms(signed, 5), atoms(positive, 3), st.floats(0.05, 5.0))
def test_moments_are_those_of_the_density(g: AtomicMeasure, t: AtomicMeasure, ratio: float) -> None:
    law = GeneralisedMarchenkoPastur(g, t, ratio)
    z = np.array([30.0 * (abs(g.nodes).max() + 1e-3) * t.nodes.max() * (1 + np.sqrt(ratio)) ** 2 * 1j])
    series = -sum(law.moment(k) / z ** (k + 1) for k in range(9))
    assert np.abs((law.stieltjes(z) - series) / series).max() < 1e-9
    mean, second = g.moment(1), g.moment(2)
    assert law.mean == pytest.approx(mean * t.moment(1), rel=1e-12, abs=1e-12)
    expected = mean**2 * t.moment(2) + ratio * second * t.moment(1) ** 2
    assert law.moment(2) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("ratio", [0.04, 0.25, 1.0, 3.0])
def test_one_atom_is_marchenko_pastur(ratio: float) -> None:
    law = GeneralisedMarchenkoPastur(AtomicMeasure.of([2.0]), AtomicMeasure.of([0.5]), ratio)
    a, b = (1 - np.sqrt(ratio)) ** 2, (1 + np.sqrt(ratio)) ** 2
    assert np.allclose(law.edges, [a, b], rtol=0, atol=1e-10)
    x = np.linspace(a, b, 202)[1:-1]
    exact = np.sqrt((x - a) * (b - x)) / (2 * np.pi * ratio * x)
    assert np.abs(law.density(x) - exact).max() < 1e-8
    assert law.mass_at_zero == pytest.approx(max(0.0, 1 - 1 / ratio))


def test_two_scales_solve_their_quartic() -> None:
    # g in {1}, t in {1, 4}: clearing denominators in the fixed point leaves a polynomial whose root is the law.
    ratio, t = 0.1, np.array([1.0, 4.0])
    law = GeneralisedMarchenkoPastur(ONE, AtomicMeasure.of(t), ratio)
    for x in (0.9, 1.4, 4.0, 6.0):
        d = np.polynomial.Polynomial([0.0, 1.0])
        terms = [v - x * (1 + d) for v in t]
        poly = d * terms[0] * terms[1] - 0.5 * ratio * (1 + d) * (t[0] * terms[1] + t[1] * terms[0])
        roots = poly.roots()
        delta = roots[np.argmax(roots.imag)]
        e = 1 / (1 + delta)
        assert float(law.density(x)) == pytest.approx(max(0.0, np.mean(1 / (t * e - x)).imag / np.pi), abs=1e-9)


def test_edges_are_stationary_points_of_the_inverse_map() -> None:
    g, ratio = AtomicMeasure.of([-1.0, 0.5, 3.0], [0.2, 0.5, 0.3]), 0.6
    law = GeneralisedMarchenkoPastur(g, None, ratio)
    # With C = I the inverse map is x(δ) = E[g/(1+gδ)] - c/δ; its derivative is a polynomial in δ.
    d = np.polynomial.Polynomial([0.0, 1.0])
    lines = [1 + v * d for v in g.nodes]
    full = np.prod([line**2 for line in lines])
    rest = [np.prod([other**2 for j, other in enumerate(lines) if j != i]) for i in range(3)]
    critical = ratio * full - d**2 * sum(w * v**2 * r for w, v, r in zip(g.weights, g.nodes, rest, strict=True))
    roots = critical.roots()
    real = roots[np.abs(roots.imag) < 1e-9].real
    exact = sorted(float(g.weights @ (g.nodes / (1 + g.nodes * v)) - ratio / v) for v in real)
    assert np.allclose(law.edges, exact, rtol=0, atol=1e-10)


def test_stieltjes_off_the_support_and_below_the_axis() -> None:
    law = GeneralisedMarchenkoPastur(ONE, None, 0.25)
    z = np.array([3.0, -1.0, 0.1, 1.0 - 0.5j, 1.0 + 0.5j])
    m = law.stieltjes(z)
    assert np.abs(0.25 * z * m**2 - (1 - 0.25 - z) * m + 1).max() < 1e-12
    assert m[3] == np.conj(m[4])
    assert (m[:3].imag == 0).all()


@pytest.mark.parametrize("size", [100, 200, 400])
def test_simulations_converge_at_rate_one_over_p(size: int) -> None:
    g, t, ratio = AtomicMeasure.of([-1.0, 1.0, 2.0]), AtomicMeasure.of([1.0, 3.0]), 0.5
    law = GeneralisedMarchenkoPastur(g, t, ratio)
    n = round(size / ratio)
    draw = np.random.default_rng(size)
    scale = np.sqrt(t.quantile((np.arange(size) + 0.5) / size))
    x = scale[:, None] * draw.standard_normal((size, n))
    values = g.quantile((np.arange(n) + 0.5) / n)
    spectrum = AtomicMeasure.of(np.linalg.eigvalsh((x * values) @ x.T / n))
    # Eigenvalues are rigid: with g and C fixed the distance falls like 1/p up to logarithms.
    assert law.kolmogorov(spectrum) < 5.0 / size


def test_refusals_teach() -> None:
    with pytest.raises(InputError, match="ratio"):
        GeneralisedMarchenkoPastur(ONE, None, 0.0)
    with pytest.raises(InputError, match="covariance spectrum"):
        GeneralisedMarchenkoPastur(ONE, AtomicMeasure.of([-1.0, 1.0]), 1.0)
    with pytest.raises(InputError, match="moment"):
        GeneralisedMarchenkoPastur(ONE, None, 1.0).moment(-1)


def test_all_zero_curvature_is_an_atom_at_zero() -> None:
    law = GeneralisedMarchenkoPastur(AtomicMeasure.of([0.0]), None, 0.5)
    assert law.mass_at_zero == 1.0
    assert law.support == []
    assert law.cdf([-1.0, 0.0]).tolist() == [0.0, 1.0]
    assert float(law.quantile(0.3)) == 0.0
