from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesscope.errors import InputError
from hesscope.measure import AtomicMeasure

values = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


@given(values)
def test_quantile_inverts_cdf(nodes: list[float]) -> None:
    measure = AtomicMeasure.of(nodes)
    for q in (0.0, 0.1, 0.5, 0.9, 1.0):
        x = float(measure.quantile(q))
        assert measure.cdf(x) >= q - 1e-9
        assert measure.cdf(np.nextafter(x, -np.inf)) <= q + 1e-9


@given(values, values)
def test_wasserstein_of_equal_sized_samples_is_the_mean_sorted_gap(a: list[float], b: list[float]) -> None:
    n = min(len(a), len(b))
    expected = np.mean(np.abs(np.sort(a[:n]) - np.sort(b[:n])))
    assert AtomicMeasure.of(a[:n]).wasserstein(AtomicMeasure.of(b[:n])) == pytest.approx(expected, abs=1e-9)


def test_kolmogorov_sees_both_sides_of_a_jump() -> None:
    # F jumps at 0 and G at 1: the largest gap, 1, is between them.
    assert AtomicMeasure.of([0.0]).kolmogorov(AtomicMeasure.of([1.0])) == 1.0
    assert AtomicMeasure.of([0.0, 2.0]).kolmogorov(AtomicMeasure.of([0.0, 1.0])) == 0.5


def test_density_integrates_to_one_and_matches_its_cdf() -> None:
    measure = AtomicMeasure.of([0.0, 1.0, 5.0], [1, 2, 1])
    x = np.linspace(-4, 9, 4001)
    density = measure.density(x, 0.3)
    assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-6)
    assert np.allclose(np.gradient(measure.smooth_cdf(x, 0.3), x), density, atol=1e-4)


def test_refuses_what_is_not_a_measure() -> None:
    with pytest.raises(InputError, match="at least one finite node"):
        AtomicMeasure.of([])
    with pytest.raises(InputError, match="at least one finite node"):
        AtomicMeasure.of([1.0, float("nan")])
    with pytest.raises(InputError, match="width > 0"):
        AtomicMeasure.of([1.0]).density(0.0)
