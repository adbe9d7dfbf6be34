"""Claims that one draw cannot decide: what is said of them, and what still decides them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hesscope.experiments.cracking._decided import decided, taken
from hesscope.experiments.cracking._two_layer import Study, measure, norm_correlations
from hesscope.experiments.declared import judge, less, more
from hesscope.experiments.liao2021._runs import growth
from hesscope.experiments.liao2021.fig4 import growing
from hesscope.rng import Rng


def _heavy(runs: int, seed: int, factor: float = 1.0) -> list[float]:
    draw = Rng(seed).numpy()
    return [float(factor * np.exp(0.4 * one)) for one in draw.standard_normal(runs)]


def test_growth_between_two_sizes_is_decided_by_standard_errors_of_the_logarithm() -> None:
    grows = growth(_heavy(50, 1, 2.0), _heavy(50, 2))
    assert isinstance(grows, tuple)
    assert isinstance(grows[0], float)
    assert grows[0] > 4
    shrinks = growth(_heavy(50, 1), _heavy(50, 2, 2.0))
    assert isinstance(shrinks, tuple)
    assert shrinks[0] == pytest.approx(-growth(_heavy(50, 2, 2.0), _heavy(50, 1))[0])  # type: ignore[index]


def test_eight_runs_with_heavy_tails_decide_nothing() -> None:
    """The larger mean is at p/2 in about half of the cases: no fact to report."""
    found = [growth(_heavy(8, 2 * n), _heavy(8, 2 * n + 1)) for n in range(40)]
    assert all(isinstance(one, str) and "not decidable from 8 runs" in one for one in found)


def test_a_number_that_other_networks_would_have_put_on_the_other_side_is_not_decided() -> None:
    """Means of normal draws: the bootstrap error is σ/√n, and 4 of them are asked for."""
    claims = (
        less("low", "somewhere", "a mean is low", 1.0, "its words"),
        more("high", "there", "another", 0.0, "words"),
    )
    draws = Rng(3).numpy().standard_normal((2, 400))

    def numbers(index: NDArray[np.int64]) -> dict[str, float]:
        chosen = draws[:, index].mean(axis=1)
        return {"low": float(chosen[0]), "high": float(chosen[1])}

    found = decided(claims, numbers, 400, Rng(4))
    assert found["low"] == (numbers(np.arange(400))["low"], found["low"][1])  # type: ignore[index]
    (shown,) = [text for text in [found["high"]] if isinstance(text, str)]
    assert shown.startswith("not decidable from 400 networks: ")
    assert float(shown.rpartition("± ")[2]) == pytest.approx(0.05, rel=0.2)
    low, high = judge(claims, found)
    assert (low.holds, high.holds, high.verdict) == (True, None, "not decidable at this size")


def test_networks_are_taken_whole() -> None:
    """The same networks in another order have the same correlations; fewer of them have others."""
    found = measure(Study("SP", 6, (2, 3), 12, 64, 25, 0))
    index = np.arange(12)[::-1]
    same, fewer = (norm_correlations(part, part.trace) for part in (taken(found, index), taken(found, index[:6])))
    np.testing.assert_allclose(same, norm_correlations(found, found.trace), rtol=1e-9)
    assert np.abs(fewer - same).max() > 1e-3


def test_a_gap_that_no_run_has_is_no_step() -> None:
    with np.errstate(all="raise"):
        steps = growing(np.array([0.0, 0.0, 0.5, 0.4]), np.array([0.0, 0.0, 0.3, 0.4]))
    np.testing.assert_allclose(steps, [0.0, 5 / 3, -0.2])
