"""The global random state is the user's."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hesscope as hs

DATA = TensorDataset(torch.randn(9, 3), torch.randn(9, 2))


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("memory", [None, 0])
def test_reading_a_loader_leaves_the_global_random_state_alone(shuffled: bool, memory: int | None) -> None:
    loader = DataLoader(DATA, batch_size=2, shuffle=shuffled)
    model = nn.Linear(3, 2)
    before = torch.get_rng_state()
    problem = hs.Problem.of(model, "mse", loader, freeze=shuffled, memory=memory)
    hs.Hessian(problem) @ torch.ones(8)
    problem.gradient()
    assert torch.equal(before, torch.get_rng_state())
