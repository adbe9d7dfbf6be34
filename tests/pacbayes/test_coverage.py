"""The bound holds as often as it says, on a task whose true error is known; and would not without its terms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import ncx2

import hesscope as hs
from hesscope.rng import Rng

DIM, EXAMPLES, DRAWS, REPEATS = 150, 200, 200, 250
GRID = hs.pacbayes.Grid(precision=10.0, ceiling=1.0)


def gibbs_error(mean: np.ndarray, scale: float, teacher: np.ndarray) -> float:
    """P[sign wᵀx ≠ sign uᵀx] for w ~ N(mean, scale² I), x ~ N(0, I): E[angle(w, u)]/π.

    Given its length r across u, w has the angle atan2(r, a): a is Gaussian and r² a scaled noncentral χ², so the mean
    over both is a sum over quantiles.
    """
    levels = (np.arange(40) + 0.5) / 40
    along = mean @ teacher
    across = max(float(mean @ mean) - along**2, 0.0)
    a = along + scale * ndtri(levels)
    r = scale * np.sqrt(ncx2.ppf(levels, len(mean) - 1, across / scale**2))
    return float(np.arctan2(r[None, :], a[:, None]).mean() / np.pi)


def one_repetition(number: int) -> tuple[hs.pacbayes.Bound, float, float]:
    """A fitted classifier's bound, the true error of its posterior, and its training error over all draws."""
    draw = Rng(3).child("coverage", number).numpy()
    teacher = np.eye(DIM)[0]
    x = draw.standard_normal((EXAMPLES, DIM))
    y = np.sign(x @ teacher)
    mean = np.linalg.lstsq(x, y, rcond=None)[0]
    scale, index = 0.03, 30
    kl = hs.pacbayes.gaussian_kl(mean, np.full(DIM, scale**2), np.zeros(DIM), GRID.variance(index))
    weights = mean + scale * draw.standard_normal((DRAWS, DIM))
    chosen = draw.integers(0, EXAMPLES, (DRAWS, 5))
    errors = np.array([np.mean(np.sign(x[i] @ w) != y[i]) for w, i in zip(weights, chosen, strict=True)])
    training = float(ndtr(-y * (x @ mean) / (scale * np.linalg.norm(x, axis=1))).mean())
    found = hs.pacbayes.bound(errors.mean(), DRAWS, kl, EXAMPLES, index, delta=0.1, delta_mc=0.1, grid=GRID)
    return found, gibbs_error(mean, scale, teacher), training


Repetitions = list[tuple[hs.pacbayes.Bound, float, float]]


@pytest.fixture(scope="module")
def repetitions() -> Repetitions:
    return [one_repetition(number) for number in range(REPEATS)]


def test_the_known_error_is_that_of_draws() -> None:
    draw = np.random.default_rng(0)
    mean, scale, teacher = draw.standard_normal(DIM), 0.4, np.eye(DIM)[0]
    w = mean + scale * draw.standard_normal((100_000, DIM))
    angle = np.arccos(w[:, 0] / np.linalg.norm(w, axis=1)) / np.pi
    assert abs(gibbs_error(mean, scale, teacher) - angle.mean()) <= 4 * angle.std() / 100_000**0.5 + 2e-4


def test_the_bound_fails_no_more_often_than_it_says(repetitions: Repetitions) -> None:
    failures = np.mean([true > found.value for found, true, _ in repetitions])
    assert failures <= repetitions[0][0].failure


def test_without_the_divergence_it_would_fail_too_often(repetitions: Repetitions) -> None:
    inverse = hs.pacbayes.binary_kl_inverse
    left = [inverse(f.error_bar, (f.union + f.confidence) / (EXAMPLES - 1)) for f, _, _ in repetitions]
    assert np.mean([true > value for value, (_, true, _) in zip(left, repetitions, strict=True)]) > 0.5
    assert max(found.value for found, _, _ in repetitions) < 0.9  # and with it, the bound still says something


def test_the_monte_carlo_term_covers_the_training_error_and_is_needed(repetitions: Repetitions) -> None:
    covered = np.mean([training <= found.error_bar for found, _, training in repetitions])
    bare = np.mean([training <= found.error for found, _, training in repetitions])
    assert covered >= 1 - repetitions[0][0].delta_mc
    assert bare < 1 - repetitions[0][0].delta_mc
