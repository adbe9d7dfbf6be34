"""Predicted block spectra against the eigenvalues of simulated blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hesscope.errors import InputError
from hesscope.measure import AtomicMeasure
from hesscope.rmt import block_law, block_limits
from hesscope.rmt.blocks.log_sum import log_sum_rule
from hesscope.rng import Rng


def distance(law: Any, matrix: np.ndarray) -> float:
    """sup |F - F_law|, looked at on both sides of every eigenvalue."""
    values = np.linalg.eigvalsh(matrix)
    values[np.abs(values) < 1e-12 * np.abs(values).max()] = 0.0
    points = np.unique(values)
    both = np.concatenate([points, np.nextafter(points, -np.inf)])
    return np.abs(AtomicMeasure.of(values).cdf(both) - law.cdf(both)).max()


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_linear_blocks_have_the_predicted_spectrum(ratio: float, classes: int) -> None:
    n = 1000 if ratio <= 1 else 500
    d = int(ratio * n)
    generator = Rng(5).child(ratio, classes).numpy()
    x = generator.standard_normal((d, n))
    logits = generator.standard_normal((classes, d)) @ x / np.sqrt(d)
    p = np.exp(logits) / np.exp(logits).sum(0)
    for block, weights in (("diagonal", p[0] * (1 - p[0])), ("off_diagonal", -p[0] * p[1])):
        law = block_law.linear_cross_entropy(ratio, classes, block)
        assert distance(law, (x * weights) @ x.T / n) < 0.05
        # The printed sign of the off-diagonal law would put it on the other side of zero.
        assert np.sign(law.mean) == np.sign(weights[0])


@pytest.mark.parametrize("classes", [2, 3, 10, 1000, 100_000])
def test_second_moments_are_the_block_limits(classes: int) -> None:
    limit = block_limits.linear_cross_entropy(0.8, classes)
    for block, value in (("diagonal", limit.diagonal[0]), ("off_diagonal", limit.off_diagonal[0])):
        assert block_law.linear_cross_entropy(0.8, classes, block).moment(2) == pytest.approx(value, rel=1e-7)


def test_density_integrates_to_one_between_the_edges() -> None:
    law = block_law.linear_cross_entropy(0.5, 10, "diagonal")
    left, right = law.edges
    nodes, weights = np.polynomial.legendre.leggauss(400)
    angle = 0.5 * np.pi * (nodes + 1)
    x = left + (right - left) * np.sin(0.5 * angle) ** 2
    mass = 0.25 * np.pi * (right - left) * (weights * np.sin(angle)) @ law.density(x)
    assert mass == pytest.approx(1.0, abs=1e-4)


def test_density_is_nowhere_negative() -> None:
    law = block_law.linear_cross_entropy(1.0, 1000, "off_diagonal")
    assert law.density(np.linspace(law.edges[0], law.edges[1], 200)).min() == 0


def test_hidden_blocks_have_the_predicted_spectrum() -> None:
    d = n = 500
    hidden, classes = 4, 10
    generator = Rng(6).numpy()
    x, v = generator.standard_normal((d, n)), generator.standard_normal((classes, hidden)) / np.sqrt(hidden)
    active = np.maximum(generator.standard_normal((hidden, d)) @ x / np.sqrt(d), 0)
    p = np.exp(v @ active)
    p /= p.sum(0)
    for i, j in ((0, 0), (0, 1)):
        on = (active[i] > 0) & (active[j] > 0)
        weights = on * ((v[:, i] * v[:, j]) @ p - (v[:, i] @ p) * (v[:, j] @ p))
        assert distance(block_law.hidden_cross_entropy(1.0, v, i, j), (x * weights) @ x.T / n) < 0.05
        gram = (x * (2.0 * (v[:, i] @ v[:, j]) * on)) @ x.T / n
        assert distance(block_law.hidden_mse(1.0, v, i, j), gram) < 0.05


@pytest.mark.parametrize("count", [1, 2, 7, 5000])
def test_log_sum_rule_has_the_moments_of_the_sum(count: int) -> None:
    nodes, weights = log_sum_rule(count)
    total = np.exp(nodes)
    assert weights @ total == pytest.approx(count * np.exp(0.5), rel=1e-8)
    assert weights @ total**2 == pytest.approx(count * np.e**2 + count * (count - 1) * np.e, rel=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: block_law.linear_cross_entropy(1.0, 1, "diagonal"),
        lambda: block_law.linear_cross_entropy(-1.0, 10, "diagonal"),
        lambda: block_law.linear_cross_entropy(1.0, 10, "both"),
        lambda: block_law.hidden_mse(1.0, np.ones((10, 2)), 0, 1),
        lambda: block_law.hidden_mse(1.0, np.ones((10, 4)), 0, 4),
        lambda: block_law.hidden_cross_entropy(1.0, np.ones(10), 0, 1),
    ],
)
def test_bad_settings_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="must"):
        call()
