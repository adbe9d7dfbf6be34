"""Budgets and seeds reach what an operator knows of itself."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import hesscope as hs


def sampled_problem() -> hs.Problem:
    """Sequences of words: too many rows and columns for exact sums, so that traces are sampled."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(80, 12), nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 80))
    tokens = torch.randint(0, 80, (24, 7), generator=hs.Rng(5).torch())
    return hs.Problem.of(
        model,
        nn.CrossEntropyLoss(),
        [(tokens, tokens.roll(1, 1))],
        forward=lambda m, batch: (m(batch[0]).transpose(1, 2), batch[1]),
    )


@pytest.mark.parametrize("limit", [5, 60, 300])
def test_the_budget_of_a_trace_holds_for_what_the_operator_knows(limit: int) -> None:
    H = hs.Hessian(sampled_problem())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert 0 < hs.trace(H, 1e-4, max_products=limit).products <= limit


def test_two_seeds_of_a_sampled_trace_differ() -> None:
    H = hs.Hessian(sampled_problem())
    first, second, again = (hs.trace(H, 0.2, rng=seed) for seed in (0, 1, 0))
    assert "random columns" in first.method
    assert first.value != second.value
    assert first.value == again.value
    assert abs(float(first) - float(second)) <= 5 * np.hypot(first.stderr, second.stderr)
