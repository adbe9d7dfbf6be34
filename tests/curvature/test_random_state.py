"""The global random state is the user's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
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


class Slices(nn.Module):
    """An operation that forward mode does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.a(x)
        z[:, 0] *= 2
        return torch.tanh(z)


def test_a_network_that_cannot_be_traced_is_multiplied_by_double_backward() -> None:
    problem = hs.Problem.of(Slices().double(), "mse", (torch.randn(5, 3).double(), torch.randn(5, 3).double()))
    traced, kept = (hs.Hessian(problem, method=method).dense() for method in ("linearize", "kept"))
    assert torch.allclose(traced, kept, rtol=1e-12)
