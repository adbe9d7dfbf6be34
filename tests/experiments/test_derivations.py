"""Formulas that experiments derive for themselves, against what the library computes in another way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hesscope.experiments.dong2025 import stripes
from hesscope.experiments.dong2025._measured import network, problem_of
from hesscope.experiments.liao2021 import least_squares, trimming
from hesscope.rmt import GLM
from hesscope.rng import Rng
from hesscope.structure import circulant_score


def test_the_two_terms_of_equation_30_are_the_cross_layer_hessian() -> None:
    model = network((5, 3, 7), Rng(1))
    x, y = torch.randn(40, 5, generator=Rng(2).torch()), torch.arange(40) % 7
    first, second = (p.detach() for p in model.parameters())
    terms = stripes.cross_terms(x, y, first, second, chunk=16)
    striped, total, _, _ = stripes._products(terms, terms)
    score = circulant_score(problem_of(model, "CE", x, y, 7))
    assert striped / total == pytest.approx(score.share, rel=1e-5)
    assert total**0.5 == pytest.approx(score.cross, rel=1e-5)


def test_one_example_is_its_own_noise() -> None:
    """E‖h‖² from single examples: the mean over examples of the same numbers for each alone."""
    model = network((4, 3, 5), Rng(3))
    x, y = torch.randn(6, 4, generator=Rng(4).torch()), torch.arange(6) % 5
    first, second = (p.detach() for p in model.parameters())
    alone = [stripes.cross_terms(x[k : k + 1], y[k : k + 1], first, second) for k in range(6)]
    expected = np.mean([stripes._products(one, one) for one in alone], axis=0)
    assert stripes._one_example(x, y, first, second, chunk=4) == pytest.approx(expected, rel=1e-5)


def test_the_spike_of_trimmed_phase_retrieval_is_that_of_the_kept_examples() -> None:
    place, cosine = trimming.truth(1.0, 1.0, 0.1)
    model = GLM(loss=trimming.trimmed(1.0), response="phase_retrieval", w=[0.0], w_star=[1.0], mean=[0.0], ratio=0.1)
    with pytest.warns(UserWarning, match="l'' jumps"):
        (spike,) = model.spikes()
    assert (spike.location, spike.alignment.w_star) == pytest.approx((place, cosine), rel=0.01)
    assert trimming.truth(8.0, 1.0, 0.1)[1] == 0.0


def test_least_squares_has_the_predicted_length_and_angle() -> None:
    along, across = least_squares.fitted_geometry(2.0, 0.25)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4000, 1000))
    y = np.where(generator.random(4000) < 1 / (1 + np.exp(-2 * x[:, 0])), 1.0, -1.0)
    w = np.linalg.solve(x.T @ x, x.T @ y)
    assert w[0] == pytest.approx(along, abs=4 / 4000**0.5)
    assert np.linalg.norm(w[1:]) == pytest.approx(across, rel=0.1)
