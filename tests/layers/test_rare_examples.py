"""What a few examples do not show: one in hundreds on which an activation curves, or on which other layers run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from hesscope.layers import facts_of


class Curved(nn.Module):
    """Linear where units are positive; `shift` moves nearly all of them there."""

    def __init__(self, activation: nn.Module, shift: float) -> None:
        super().__init__()
        self.a, self.activation, self.b = nn.Linear(4, 5), activation, nn.Linear(5, 3)
        nn.init.constant_(self.a.bias, shift)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.b(self.activation(self.a(x)))
        return found


class AgainForSome(nn.Module):
    """A batch with a large first input runs the first layer's weight a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.a(x))
        if x.shape[0] and bool((x[:, 0] > 9).any()):
            hidden = torch.where(x[:, :1] > 9, F.linear(hidden, self.a.weight), hidden)
        found: Tensor = self.b(hidden)
        return found


def data(count: int = 300) -> tuple[Tensor, Tensor]:
    draw = hs.Rng(1).torch()
    return torch.randn(count, 4, generator=draw).double(), torch.randint(0, 3, (count,), generator=draw)


def truth(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    weights = list(model.parameters())
    first = torch.autograd.grad(F.cross_entropy(model(x), y), weights, create_graph=True)
    rows = [torch.autograd.grad(g, weights, retain_graph=True) for t in first for g in t.reshape(-1)]
    return torch.stack([torch.cat([t.reshape(-1) for t in row]) for row in rows])


def assert_all_right(problem: hs.Problem, H: Tensor, size: int) -> None:
    """Trace, diagonal, layer Hessian, layer table and block norms of the first layer, exact or within their errors."""
    op = hs.Hessian(problem)
    trace, diagonal = hs.trace(op), hs.diagonal(op)
    assert abs(float(trace.value) - float(H.trace())) <= 4 * float(trace.stderr) + 1e-9
    assert np.all(np.abs(diagonal.value - H.diagonal().numpy()) <= 4 * diagonal.stderr + 1e-9)
    table = hs.per_layer(problem, kronecker=False)
    own = slice(0, size)
    assert abs(table.trace[0] - float(H[own, own].trace())) <= 4 * table.trace_stderr[0] + 1e-9
    norms = hs.block_norms(problem, "layer")
    assert abs(norms.norms[0, 0] - float(H[own, own].norm())) <= 1e-9


@pytest.mark.parametrize("activation", [nn.ELU(), nn.Hardswish()], ids=["elu", "hardswish"])
@pytest.mark.parametrize("batch_size", [300, 64])
def test_an_activation_that_curves_on_one_example_of_hundreds(activation: nn.Module, batch_size: int) -> None:
    torch.manual_seed(0)
    model = Curved(activation, 8.0).double()
    x, y = data()
    weight = model.a.weight.detach()
    linear = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=batch_size)
    assert facts_of(linear).layer("a").gauss_newton
    x[211] = -7.0 * weight[0] / weight[0].square().sum()  # its first unit is at 1, all others are linear
    if isinstance(activation, nn.ELU):
        x[211] *= 8.5 / 7.0
    H = truth(model, x, y)
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=batch_size)
    assert facts_of(problem).layer("b").gauss_newton
    assert not facts_of(problem).layer("a").gauss_newton
    assert_all_right(problem, H, 25)
    torch.testing.assert_close(hs.layer_hessian(problem, "a").dense(), H[:20, :20], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("batch_size", [300, 1])
def test_a_layer_that_runs_again_for_one_example_of_hundreds(batch_size: int) -> None:
    torch.manual_seed(0)
    model, (x, y) = AgainForSome().double(), data(120 if batch_size == 1 else 300)
    x[77, 0] = 10.0
    batches = [(x[i : i + batch_size], y[i : i + batch_size]) for i in range(0, len(x), batch_size)]
    problem = hs.Problem.of(model, nn.CrossEntropyLoss(), batches)
    assert "used otherwise" in facts_of(problem).layers["a"].reason
    assert_all_right(problem, truth(model, x, y), 20)


def test_little_curvature_of_outputs_counts_where_the_loss_has_less() -> None:
    """An ELU that curves by exp(-28), below a loss that is saturated: all of the trace is behind it."""
    torch.manual_seed(0)
    model = Curved(nn.ELU(), 5.0).double()
    x, y = data(20)
    with torch.no_grad():
        model.a.weight.mul_(0.3)
        model.a.bias[3:] = -28.0
        model.b.weight.normal_()
        model.b.weight[:, 3:].mul_(50.0)
        model.b.bias.copy_(torch.tensor([15.0, 0.0, 0.0]))
    H = truth(model, x, y)
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    assert facts_of(problem).layer("b").gauss_newton
    assert not facts_of(problem).layer("a").gauss_newton
    found = hs.trace(hs.Hessian(problem))
    assert found.exact
    assert float(found) == pytest.approx(float(H.trace()), rel=1e-9)
    np.testing.assert_allclose(
        hs.diagonal(hs.Hessian(problem)).value, H.diagonal(), rtol=1e-6, atol=1e-9 * float(H.norm())
    )
