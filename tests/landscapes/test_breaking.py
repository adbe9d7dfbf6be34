"""Breaking distances against closed forms: where they are, and that the interval holds them whatever the noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq

from hesscope.landscapes.breaking import Quadratic, breaking_distance, rounding_noise
from hesscope.results.landscape import BreakingDistance


def _quartic(t: float) -> float:
    return 0.3 + 0.5 * 4.0 * t * t + 7.0 * t**4


def _noisy(loss: Callable[[float], float], size: float, seed: int = 0) -> Callable[[float], float]:
    """The same value for the same place, as rounding has it."""
    return lambda t: loss(t) + size * np.random.default_rng([seed, abs(hash(t))]).standard_normal()


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("reach", [1e-3, 0.4, 5.0, 5e5])
def test_a_quartic_breaks_where_it_must(sign: int, reach: float) -> None:
    share = 0.1
    truth = math.sqrt(share * 4.0 / 2 / 7.0)  # 7 t⁴ = share · 4 t²/2
    found = breaking_distance(_quartic, Quadratic(0.3, 0.0, 4.0), sign, share, 1e-16, reach)
    assert found.low <= truth <= found.high
    assert found.error <= 0.004 * truth or reach == 1e-3  # out of reach: said as a bound
    if reach == 1e-3:
        assert not found.found
        assert found.low == pytest.approx(64e-3)


def test_slope_and_both_sides_of_an_exponential() -> None:
    model = Quadratic(1.0, 1.0, 1.0)
    for sign in (-1, 1):

        def excess(t: float, sign: int = sign) -> float:
            return abs(math.exp(sign * t) - 1 - sign * t - t * t / 2) - 0.1 * (t + t * t / 2)

        truth = brentq(excess, 0.1, 5.0)
        found = breaking_distance(math.exp, model, sign, 0.1, 1e-16, 1.0)
        assert found.low <= truth <= found.high < 1.006 * truth


def test_the_interval_grows_with_the_noise_and_keeps_the_truth() -> None:
    truth = math.sqrt(0.1 * 2.0 / 7.0)
    widths = []
    for size in (0.0, 1e-4, 1e-3):
        loss = _noisy(_quartic, size)
        noise = max(4 * size, 1e-16)
        found = breaking_distance(loss, Quadratic(0.3, 0.0, 4.0), 1, 0.1, noise, 1.0)
        assert found.low <= truth <= found.high
        widths.append(found.error)
    assert widths[0] < widths[1] < widths[2]
    hidden = breaking_distance(_noisy(_quartic, 0.1), Quadratic(0.3, 0.0, 4.0), 1, 0.1, 0.4, 1.0)
    assert hidden.low == 0.0
    assert hidden.high > truth


def test_the_first_break_of_several_is_found() -> None:
    """Off between 0.60 and 0.74, right again after: within one factor of two of the scan."""

    def loss(t: float) -> float:
        return 0.5 * t * t * (1.5 if 0.60 < t < 0.74 else 1.0)

    found = breaking_distance(loss, Quadratic(0.0, 0.0, 1.0), 1, 0.1, 1e-16, 1.0)
    assert not found.found  # 0.5 and 1 see nothing of it, as the docs say
    found = breaking_distance(lambda t: loss(t) + 10 * max(0.0, t - 0.9), Quadratic(0.0, 0.0, 1.0), 1, 0.1, 1e-16, 1.0)
    assert found.low <= 0.60 <= found.high < 0.61


def test_a_kink_at_the_parameters_has_no_distance() -> None:
    found = breaking_distance(lambda t: 1.0 + abs(t), Quadratic(1.0, 0.0, 1.0), 1, 0.1, 1e-16, 1.0)
    assert found.low == 0.0
    assert found.high < 1e-5
    assert str(found).startswith("below")


def test_what_is_not_finite_is_broken() -> None:
    def loss(t: float) -> float:
        return 0.5 * t * t if t < 0.3 else math.inf

    found = breaking_distance(loss, Quadratic(0.0, 0.0, 1.0), 1, 0.1, 1e-16, 1.0)
    assert found.low <= 0.3 <= found.high < 0.302


def test_errors_of_the_coefficients_widen_the_interval() -> None:
    right = breaking_distance(_quartic, Quadratic(0.3, 0.0, 4.0), 1, 0.1, 1e-16, 1.0)
    doubted = breaking_distance(_quartic, Quadratic(0.3, 0.0, 4.0, 1e-3, 0.04), 1, 0.1, 1e-16, 1.0)
    assert doubted.low < right.low < right.high < doubted.high


@pytest.mark.parametrize("size", [1e-12, 1e-7, 1e-3])
def test_the_noise_of_a_loss_is_measured(size: float) -> None:
    """Four standard deviations or more, never by much more."""
    found = [rounding_noise(_noisy(lambda t: math.cos(3 * t) + 2, size, k), 1e-5) / (4 * size) for k in range(200)]
    assert np.mean(np.array(found) > 0.9) > 0.9
    assert min(found) > 0.5
    assert max(found) < 4.5  # 1,800 Gaussian numbers reach 3.3 or so


def test_words() -> None:
    assert str(BreakingDistance(0.9, 1.1)) == "1 ± 0.1"
    assert str(BreakingDistance(0.9, math.inf)) == "not before 0.9"
    assert BreakingDistance(0.9, math.inf).error == math.inf
