"""Every experiment of "Cracking the Hessian" at its quick size: claims hold, figures draw, outcomes can be saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hesscope import closed_form as cf
from hesscope.experiments import find, names
from hesscope.experiments.cracking._ensemble import (
    compressed,
    initial_weights,
    mean_squared_loss,
    sharpness,
    teacher_data,
    widths_of,
)
from hesscope.experiments.cracking._pairs import chance_rank, two_best_gaps
from hesscope.experiments.cracking._truth import dense_hessian
from hesscope.result import Result
from hesscope.rng import Rng

EXPERIMENTS = [name for name in names() if name.startswith("cracking.")]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_quick_claims_hold(name: str, tmp_path: Path) -> None:
    experiment = find(name)
    outcome = experiment.run(experiment.quick)
    assert outcome.name == experiment.name == name
    assert len(outcome.claims) >= 2
    for claim in outcome.claims:
        assert claim.holds, f"{claim.statement}: expected {claim.expected}, got {claim.got}"
    loaded = Result.load(outcome.save(tmp_path / "outcome"))
    figures = experiment.figures(loaded)
    assert figures
    for title, figure in figures.items():
        figure.savefig(tmp_path / f"{title}.png")
        assert all(axis.get_xlabel() and axis.get_ylabel() for axis in figure.axes[:1])
    assert type(experiment.paper) is type(experiment.quick)


def test_all_figures_are_there() -> None:
    assert {name.split(".")[1] for name in EXPERIMENTS} == {
        *("fig1", "fig2", "fig3", "fig4", "fig7", "fig8", "fig9"),
        *("fig10_13", "fig14_16", "fig17_22", "fig26", "fig27"),
    }


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("parametrization", ["SP", "muP", "NTP"])
def test_stacked_sharpness_is_that_of_each_network(relu: bool, parametrization: str) -> None:
    widths = widths_of(3, 4, 2)
    x, y = teacher_data(Rng(0).child("data"), 12, 2, relu)
    weights = initial_weights(Rng(1), 5, widths, parametrization)
    loss = mean_squared_loss(x, y, widths, parametrization, relu)
    found = sharpness(weights, loss, steps=32)
    for n in range(5):
        dense = dense_hessian(lambda *w: loss(tuple(w)), [w[n] for w in weights])
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
