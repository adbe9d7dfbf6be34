"""The parts that experiments of "Cracking the Hessian" share, against dense Hessians and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hesscope import closed_form as cf
from hesscope.experiments.cracking._ensemble import (
    compressed,
    initial_weights,
    mean_squared_loss,
    sharpness,
    teacher_data,
    widths_of,
)
from hesscope.experiments.cracking._pairs import chance_rank, two_best_gaps
from hesscope.experiments.cracking._truth import double_backward_hessian
from hesscope.rng import Rng


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("parametrization", ["SP", "muP", "NTP"])
def test_stacked_sharpness_is_that_of_each_network(relu: bool, parametrization: str) -> None:
    widths = widths_of(3, 4, 2)
    x, y = teacher_data(Rng(0).child("data"), 12, 2, relu)
    weights = initial_weights(Rng(1), 5, widths, parametrization)
    loss = mean_squared_loss(x, y, widths, parametrization, relu)
    found = sharpness(weights, loss, steps=32)
    for n in range(5):
        dense = double_backward_hessian(lambda *w: loss(tuple(w)), [w[n] for w in weights])
        assert float(found[n]) == pytest.approx(np.linalg.eigvalsh(dense)[-1], rel=1e-8)


def test_sharpness_of_fitted_networks_survives_an_exhausted_krylov_space() -> None:
    weights = initial_weights(Rng(2), 3, (1, 6, 1), "SP")
    x = torch.tensor([[1.0], [-2.0]], dtype=torch.float64)
    product = (weights[1] @ weights[0])[0]
    loss = mean_squared_loss(x, x @ product.T, (1, 6, 1), "SP", False)
    exact = cf.linear_network(weights[1][0, 0], weights[0][0, :, 0], x[:, 0], (x @ product.T)[:, 0]).sharpness
    assert float(sharpness(weights, loss)[0]) == pytest.approx(exact, rel=1e-10)


def test_compressed_data_give_the_same_loss_and_hessian() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(40, d, generator=generator, dtype=torch.float64) for d in (3, 2))
    short = compressed(x, y)
    assert short[0].shape == (5, 3)
    weights = initial_weights(Rng(3), 2, (3, 4, 2), "SP")
    before, after = (mean_squared_loss(*data, (3, 4, 2), "SP", False) for data in ((x, y), short))
    torch.testing.assert_close(before(weights), after(weights), rtol=1e-12, atol=0)
    torch.testing.assert_close(sharpness(weights, before), sharpness(weights, after), rtol=1e-9, atol=0)


def test_pairs_count_each_pair_once_and_repeats_with_themselves() -> None:
    values = np.array([-1.0, 0.0, 0.0, 2.0, 5.0])
    assert two_best_gaps(values, 4.0) == (0.0, 1.0)  # -1 + 5, then 0 + 5
    assert two_best_gaps(np.array([1.0, 1.0, 9.0]), 2.0) == (0.0, 8.0)
    assert two_best_gaps(np.array([1.0, 9.0]), 2.0) == (8.0, np.inf)


def test_two_best_gaps_against_all_pairs() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        values, target = rng.normal(size=9), rng.normal()
        i, j = np.triu_indices(9, 1)
        assert two_best_gaps(values, target) == pytest.approx(np.sort(np.abs(values[i] + values[j] - target))[:2])


def test_chance_rank_is_uniform_for_a_random_target() -> None:
    rng = np.random.default_rng(0)
    ranks = []
    for n in range(200):
        values = rng.normal(size=12) + 1
        ranks.append(chance_rank(values, float(rng.uniform(1.9, 2.1)), Rng(n), others=29))
    assert abs(np.mean(ranks) - 0.5) <= 4 * np.std(ranks) / len(ranks) ** 0.5
