"""Losses whose one term holds all positions of an example: squares of outputs (examples, channels, time)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hesscope as hs
from hesscope.errors import HesscopeError
from hesscope.kron import decouple, layer_hessian


class Tokens(nn.Module):
    """Two linear layers at every position, and the outputs with channels in the second axis."""

    def __init__(self, activation: Callable[[Tensor], Tensor], checkpointed: bool = False) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        self.activation, self.checkpointed = activation, checkpointed

    def first(self, x: Tensor) -> Tensor:
        return self.activation(self.a(x))

    def forward(self, x: Tensor) -> Tensor:
        hidden = checkpoint(self.first, x, use_reentrant=False) if self.checkpointed else self.first(x)
        return self.b(hidden).transpose(1, 2)


def _case(model: Tokens) -> tuple[Tokens, Tensor, Tensor]:
    draw = hs.Rng(5).torch()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.6)
    x, y = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((5, 3, 3), (5, 2, 3)))
    return model.double(), x, y


def _block(model: Tokens, weight: Tensor, x: Tensor, y: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(F.mse_loss(model(x), y), weight, create_graph=True)
    rows = [torch.autograd.grad(g, weight, retain_graph=True)[0].flatten() for g in gradient.flatten()]
    return torch.stack(rows)


def _factors(model: Tokens, x: Tensor, y: Tensor) -> Tensor:
    """E[M] ⊗ E[x xᵀ] of the first layer over all positions, scaled to the loss, from plain double backward."""
    z = model.a(x).detach().requires_grad_()
    loss = F.mse_loss(model.b(model.activation(z)).transpose(1, 2), y)
    (slope,) = torch.autograd.grad(loss, z, create_graph=True)
    total = torch.zeros(4, 4, dtype=torch.float64)
    for i in range(4):
        # Positions do not see each other, so that the sum over them has their own second derivatives.
        (row,) = torch.autograd.grad(slope[..., i].sum(), z, retain_graph=True)
        total[i] = row.sum((0, 1))
    flat = x.reshape(-1, 3)
    return torch.kron(total, flat.T @ flat / len(flat))


@pytest.mark.parametrize("activation", [torch.relu, torch.tanh])
@pytest.mark.parametrize("batch_size", [5, 2])
def test_positions_of_one_term(activation: Callable[[Tensor], Tensor], batch_size: int) -> None:
    model, x, y = _case(Tokens(activation))
    problem = hs.Problem.of(model, nn.MSELoss(), (x, y), batch_size=batch_size)
    for name, layer in (("a", model.a), ("b", model.b)):
        op = layer_hessian(problem, name)
        assert "exact" in op.curvature
        torch.testing.assert_close(op.dense(), _block(model, layer.weight, x, y), rtol=1e-9, atol=1e-12)
    found = decouple(problem, "a")
    torch.testing.assert_close(found.operator.dense(), _factors(model, x, y), rtol=1e-9, atol=1e-12)


def test_all_terms_by_example_or_by_position_are_the_same_factors() -> None:
    """The mean over positions that are apart, whether units are positions (second derivatives) or examples (factors)."""
    model, x, y = _case(Tokens(torch.relu))
    problem = hs.Problem.of(model, nn.MSELoss(), (x, y))
    both = [decouple(problem, "a", curvature=how) for how in ("gauss_newton", "second_derivative")]
    first, second = (found.operator.dense() for found in both)
    torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-12)


def test_layers_behind_a_checkpointed_part_and_inside_it() -> None:
    model, x, y = _case(Tokens(torch.tanh, checkpointed=True))
    problem = hs.Problem.of(model, nn.MSELoss(), (x, y))
    torch.testing.assert_close(
        layer_hessian(problem, "b").dense(), _block(model, model.b.weight, x, y), rtol=1e-9, atol=1e-12
    )
    with pytest.raises(HesscopeError, match="'a': activation checkpointing computes it again"):
        layer_hessian(problem, "a")
