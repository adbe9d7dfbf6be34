"""Sampled Fisher matrices depend on the seed and the data, never on how the data was batched or what memory there was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import hesscope as hs
from hesscope.curvature.losses.row_draws import RowDraws

DRAW = hs.Rng(3).torch()
X = torch.randn(40, 5, generator=DRAW, dtype=torch.float64)
TARGETS: dict[str, tuple[Any, torch.Tensor]] = {
    "cross-entropy": (nn.CrossEntropyLoss(), torch.randint(0, 3, (40,), generator=DRAW)),
    "squared error": (nn.MSELoss(), torch.randn(40, 3, generator=DRAW, dtype=torch.float64)),
    "binary": (nn.BCEWithLogitsLoss(), torch.rand(40, 3, generator=DRAW, dtype=torch.float64).round()),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def fisher(loss: Any, data: Any, **options: Any) -> torch.Tensor:
    return hs.Fisher(hs.Problem.of(network(), loss, data, **options), "mc", samples=2, rng=5).dense()


@pytest.mark.parametrize("name", TARGETS)
def test_draws_belong_to_examples(name: str) -> None:
    loss, y = TARGETS[name]
    whole = fisher(loss, (X, y))
    sizes = ([10] * 4, [1, 3, 36], [7] * 5 + [5])
    cut = [fisher(loss, list(zip(X.split(size), y.split(size), strict=True))) for size in sizes]
    starved = fisher(loss, list(zip(X.split(10), y.split(10), strict=True)), memory=0)
    for other in (*cut, starved, fisher(loss, (X, y), batch_size=6)):
        torch.testing.assert_close(other, whole, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(hs.Fisher(hs.Problem.of(network(), loss, (X, y)), "mc", samples=2, rng=6).dense(), whole)


def test_ignored_labels_move_no_draws_of_another_batching() -> None:
    loss, y = nn.CrossEntropyLoss(), TARGETS["cross-entropy"][1].clone()
    y[::7] = -100
    whole = fisher(loss, (X, y))
    torch.testing.assert_close(fisher(loss, list(zip(X.split(9), y.split(9), strict=True))), whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("columns", [1, 3, 4, 9])
def test_draws_of_rows_are_independent_and_of_their_laws(columns: int) -> None:
    draws = RowDraws(hs.Rng(1), 0)
    uniform, normal = draws.uniform(20_000 // columns, columns), draws.normal(20_000 // columns, columns)
    assert torch.equal(uniform[100:], RowDraws(hs.Rng(1), 100).uniform(20_000 // columns - 100, columns))
    assert len(torch.unique(uniform)) == uniform.numel()
    n = uniform.numel()
    assert abs(float(uniform.mean()) - 0.5) <= 4 / (12 * n) ** 0.5
    assert abs(float(normal.mean())) <= 4 / n**0.5
    assert abs(float(normal.square().mean()) - 1) <= 4 * (2 / n) ** 0.5
    following = (normal[1:] * normal[:-1]).mean()
    assert abs(float(following)) <= 4 / n**0.5
