"""Facts that must not be read off a few lucky examples, and what layers offer beside them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from hesscope.layers import SubstitutedLinears, capture, facts_of
from layers.layer_table import TABLE, Row
from layers.test_layers import N, problem_of


@pytest.mark.parametrize("row", [row for row in TABLE if row.multiplies], ids=lambda row: row.name)
def test_matrices_and_units_go_there_and_back(row: Row) -> None:
    problem = problem_of(row)
    known = facts_of(problem).layer(row.layer)
    (layer,) = capture(problem, next(iter(problem.batches)), [row.layer]).layers
    weight = layer.roles.weight
    assert weight is not None
    assert known.matrix(weight).shape == (known.outputs, known.inputs)
    assert torch.equal(known.stored(known.matrix(weight)), weight)
    back = known.raw(known.units(layer.z.detach()), layer.z)
    assert torch.equal(back, layer.z)
    assert back.stride() == layer.z.stride()  # batch-norm's double backward is wrong for another layout


class OverTime(nn.Module):
    """A layer over steps that are summed: its positions interact, with time in the first axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(torch.tanh(self.layer(x.transpose(0, 1))).sum(0))
        return found


def over_time(examples: int, far: float) -> hs.Problem:
    torch.manual_seed(0)
    model = OverTime().double()
    x = torch.randn(examples, 5, 3).double()
    return hs.Problem.of(model, nn.HuberLoss(), (x, model(x).detach() + far))


def test_a_loss_that_does_not_curve_proves_nothing() -> None:
    """Far from the targets Huber is linear: no second derivative shows that positions interact and outputs curve."""
    known = facts_of(over_time(N, 100.0)).layer("layer")
    assert known.exact
    assert not known.positions_apart
    assert not known.gauss_newton


def test_all_of_a_batch_belongs_to_its_only_example() -> None:
    problem = over_time(1, 0.1)
    known = facts_of(problem).layer("layer")
    assert known.exact
    assert known.positions == 5
    (layer,) = capture(problem, next(iter(problem.batches)), ["layer"]).layers
    assert known.units(layer.z).shape == (1, 5, 4)
    assert known.patches(layer).shape == (1, 5, 1, 3)


def test_linear_maps_are_substituted_in_this_block_only() -> None:
    weight, other = torch.randn(4, 3), torch.randn(4, 3)
    x = torch.randn(2, 3)
    maps = SubstitutedLinears({"a": lambda x: 2 * x}, {"a": weight})
    with maps:
        assert torch.equal(F.linear(x, weight, torch.ones(4)), 2 * x)
        assert torch.equal(F.linear(input=x, weight=weight), 2 * x)
        assert torch.equal(F.linear(x, other), x @ other.T)
    with pytest.raises(RuntimeError, match="shape"), maps:
        F.linear(x, torch.randn(4, 2))
    assert torch.equal(F.linear(x, weight), x @ weight.T)


class OneSeesAll(nn.Module):
    """Examples are apart, but for those whose first input is large: they are given the mean of all."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x)
        found: Tensor = self.out(torch.tanh(hidden + (x[:, :1] > 9) * hidden.mean(0)))
        return found


def test_one_example_in_hundreds_that_sees_the_others() -> None:
    torch.manual_seed(0)
    model, x, y = OneSeesAll().double(), torch.randn(300, 3).double(), torch.randint(0, 2, (300,))
    assert len(facts_of(hs.Problem.of(model, "cross_entropy", (x, y))).exact) == 2
    x[201, 0] = 10.0
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    assert not facts_of(problem).exact
    weights = list(model.parameters())
    first = torch.autograd.grad(F.cross_entropy(model(x), y), weights, create_graph=True)
    rows = [torch.autograd.grad(g, weights, retain_graph=True) for t in first for g in t.reshape(-1)]
    truth = torch.stack([torch.cat([t.reshape(-1) for t in row]) for row in rows])
    assert torch.allclose(hs.dense_hessian(problem), truth, atol=1e-10)
