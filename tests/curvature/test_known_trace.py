"""Budgets and seeds reach what an operator knows of itself."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hesscope as hs
from hesscope.layers.capturing import Capture


def words() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(80, 12), nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 80))
    return model, torch.randint(0, 80, (24, 7), generator=hs.Rng(5).torch())


def sampled_problem() -> hs.Problem:
    """Sequences of words: too many rows and columns for exact sums, so that traces are sampled."""
    model, tokens = words()
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


def test_a_sampled_trace_is_that_of_double_backward() -> None:
    model, tokens = words()
    parameters = list(model.parameters())
    loss = nn.functional.cross_entropy(model(tokens).transpose(1, 2), tokens.roll(1, 1))
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, create_graph=True)])
    exact = 0.0
    for rows in torch.eye(len(gradient)).split(500):
        second = torch.autograd.grad(gradient, parameters, rows, is_grads_batched=True, retain_graph=True)
        exact += float((torch.cat([part.flatten(1) for part in second], 1) * rows).sum())
    found = hs.trace(hs.Hessian(sampled_problem()), 0.05)
    assert "random columns" in found.method
    assert 0 < found.stderr < 0.1 * exact
    assert abs(float(found) - exact) <= 4 * found.stderr


def later_rows() -> hs.Problem:
    """One row per example in the first batch, where structure is looked for; in the second some labels are ignored."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 12))
    draw = hs.Rng(3).torch()
    whole = torch.randn(40, 6, generator=draw), torch.randint(0, 12, (40,), generator=draw)
    holes = torch.randn(40, 6, generator=draw), torch.randint(0, 12, (40,), generator=draw)
    holes[1][-1] = -100
    return hs.Problem.of(model, nn.CrossEntropyLoss(), [whole, holes])


@pytest.mark.parametrize("function", [hs.trace, hs.diagonal])
def test_the_budget_holds_where_a_later_batch_is_not_one_row_per_example(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = 0
    gradients = Capture.gradients

    def counted(run: Capture, *arguments: Any, **options: Any) -> Any:
        nonlocal passes
        passes += 1
        return gradients(run, *arguments, **options)

    problem = later_rows()
    function(problem, 0.5)  # what is proven once per problem is not part of the budget
    monkeypatch.setattr(Capture, "gradients", counted)
    counting = hs.Counted(hs.Hessian(problem))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = function(counting, 1e-3, max_products=16)
    assert counting.count + passes // 2 <= 16  # a pass is made for each of two batches
    assert found.products == counting.count + passes // 2
