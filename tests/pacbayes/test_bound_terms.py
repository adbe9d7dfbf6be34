"""Divergences and bounds against high precision, torch.distributions and each other."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import hesscope as hs
from hesscope.errors import InputError
from hesscope.pacbayes.kl import binary_kl_inverse_slopes
from properties import examples

getcontext().prec = 60
RATES = st.floats(1e-9, 1 - 1e-9)


def exact_kl(q: float, p: float) -> float:
    a, b = Decimal(q), Decimal(p)
    return float(a * (a / b).ln() + (1 - a) * ((1 - a) / (1 - b)).ln())


@examples(300)
@given(RATES, st.floats(-1, 1), st.floats(-14, 0))
@example(0.1875, -0.9999999999999999, 0.0)  # p = 2e-17: p - q has forgotten it
@example(0.8125, 0.9999999999999999, 0.0)
def test_binary_kl_keeps_its_digits_also_near_equality(q: float, direction: float, size: float) -> None:
    p = q + direction * 10**size * min(q, 1 - q)
    if p != q and 0 < p < 1:
        assert hs.pacbayes.binary_kl(q, p) == pytest.approx(exact_kl(q, p), rel=1e-13)


@examples(150)
@given(st.floats(1e-6, 0.9), st.floats(-9, 0.7))
def test_inverse_inverts_from_above(q: float, exponent: float) -> None:
    c = 10**exponent
    p = hs.pacbayes.binary_kl_inverse(q, c)
    assert q < p <= 1
    if p < 1 - 1e-9:
        slack = 4e-16 / (p - q) + 4e-16 * c / (p * (1 - p))  # what one unit in the last place of p changes
        assert exact_kl(q, p) == pytest.approx(c, rel=1e-12 + 4 * slack * (p - q) / (p * (1 - p)) / c)


def test_inverse_at_the_ends() -> None:
    inverse = hs.pacbayes.binary_kl_inverse
    assert inverse(0.0, 1e-18) == 1e-18
    assert inverse(0.0, 2.0) == pytest.approx(1 - math.exp(-2.0), rel=1e-15)
    assert inverse(1.0, 0.1) == 1.0
    assert inverse(0.3, 0.0) == 0.3
    assert inverse(0.3, math.inf) == 1.0
    np.testing.assert_allclose(inverse([0.0, 1.0], 0.5), [1 - math.exp(-0.5), 1.0])
    assert math.isinf(hs.pacbayes.binary_kl(0.5, 1.0))


def test_inverse_slopes_are_derivatives() -> None:
    q, c, h = 0.03, 0.07, 1e-6
    _, by_error, by_complexity = binary_kl_inverse_slopes(q, c)
    inverse = hs.pacbayes.binary_kl_inverse
    assert by_error == pytest.approx((inverse(q + h, c) - inverse(q - h, c)) / (2 * h), rel=1e-6)
    assert by_complexity == pytest.approx((inverse(q, c + h) - inverse(q, c - h)) / (2 * h), rel=1e-6)


@examples(30)
@given(st.integers(0, 10**6))
def test_gaussian_kl_is_that_of_torch_and_does_not_depend_on_the_basis(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    n, scale = 5, 0.03
    w, w0 = (torch.randn(n, generator=draw, dtype=torch.float64) for _ in range(2))
    s = torch.rand(n, generator=draw, dtype=torch.float64) * 0.1 + 1e-4
    u = torch.linalg.qr(torch.randn(n, n, generator=draw, dtype=torch.float64))[0]
    found = hs.pacbayes.gaussian_kl(u.T @ w, s, u.T @ w0, scale)
    dense = torch.distributions.MultivariateNormal(w, u @ torch.diag(s) @ u.T)
    prior = torch.distributions.MultivariateNormal(w0, scale * torch.eye(n, dtype=torch.float64))
    assert found == pytest.approx(float(torch.distributions.kl_divergence(dense, prior)), rel=1e-9)


def test_bound_adds_up_its_terms() -> None:
    found = hs.pacbayes.bound(0.02, 50_000, 3000.0, 60_000, (120, 40), delta=0.02, delta_mc=0.03)
    assert found.failure == pytest.approx(0.05)
    union = sum(math.log(math.pi**2 * j**2 / 6) for j in (120, 40))
    assert found.complexity == pytest.approx((3000 + union + math.log(60_000 / 0.02)) / 59_999)
    assert exact_kl(0.02, found.error_bar) == pytest.approx(math.log(2 / 0.03) / 50_000, rel=1e-10)
    assert exact_kl(found.error_bar, found.value) == pytest.approx(found.complexity, rel=1e-10)
    assert found.variances == pytest.approx((0.1 * math.exp(-1.2), 0.1 * math.exp(-0.4)))


def test_printed_rows_of_table_10_need_no_monte_carlo_term() -> None:
    """m = 60000, delta = 0.025 and the listed KL, error and λ give the printed bound; with delta' it is larger."""
    for kl, error, half_log, printed in ((4612.6, 0.03373, -1.3313, 0.154), (3766.1, 0.02347, -1.2913, 0.1198)):
        j = round(100 * (math.log(0.1) - 2 * half_log))
        many = hs.pacbayes.bound(error, 10**12, kl, 60_000, j)
        assert many.value == pytest.approx(printed, abs=6e-4)
        assert hs.pacbayes.bound(error, 50_000, kl, 60_000, j).value > printed + 3e-3


def test_printed_rows_at_the_ceiling_are_outside_the_union_bound() -> None:
    assert 0.5 * math.log(0.1) == pytest.approx(-1.1513, abs=1e-4)
    with pytest.raises(InputError, match="j = 0 is not in the union"):
        hs.pacbayes.bound(0.04706, 50_000, 21896.0, 60_000, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.0}, "delta must lie strictly"),
        ({"delta": 1.5}, "delta must lie strictly"),
        ({"delta_mc": 1.0}, "delta_mc must lie strictly"),
        ({"delta": 0.6, "delta_mc": 0.5}, "below 1"),
        ({"error": 1.2}, "0-1 error"),
        ({"error": float("nan")}, "0-1 error"),
        ({"kl": -1.0}, "at least 0"),
        ({"draws": 0}, "at least 1 draw"),
    ],
)
def test_impossible_bounds_are_refused(changes: dict[str, Any], message: str) -> None:
    arguments = {"error": 0.1, "draws": 100, "kl": 10.0, "examples": 100, "index": 3} | changes
    with pytest.raises(InputError, match=message):
        hs.pacbayes.bound(**arguments)


def test_rates_outside_the_unit_interval_are_refused() -> None:
    for call in (lambda: hs.pacbayes.binary_kl(1.1, 0.5), lambda: hs.pacbayes.binary_kl_inverse(-0.1, 0.5)):
        with pytest.raises(InputError, match=r"in \[0, 1\]"):
            call()
    with pytest.raises(InputError, match="at least 0"):
        hs.pacbayes.binary_kl_inverse(0.1, -1.0)
