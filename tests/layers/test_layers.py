"""Every kind of layer against plain autograd, example by example; and what must never pass for a layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from hesscope.layers import capture, facts_of
from hesscope.layers.example_gradients import ExampleGradients
from hesscope.layers.kinds import MatrixKind
from layers.layer_table import TABLE, Row

N = 9


def problem_of(row: Row) -> hs.Problem:
    torch.manual_seed(1)
    model = row.make().double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    x = row.inputs(N)
    x = x.double() if x.is_floating_point() else x
    return hs.Problem.of(model, "cross_entropy", (x, torch.randint(0, 3, (N,))))


def example_gradients(problem: hs.Problem, cotangent: Tensor) -> dict[str, Tensor]:
    """Gradients of <f_n, c_n> by plain backward, one example at a time: `(N, ...)`."""
    ((x, _),) = problem.batches
    model, parameters = problem.model, dict(problem.model.named_parameters())
    found = []
    for n in range(N):
        f = model(x[n : n + 1])
        found.append(torch.autograd.grad((f * cotangent[n]).sum(), list(parameters.values()), allow_unused=True))
    filled = [
        [torch.zeros_like(p) if g is None else g for p, g in zip(parameters.values(), one, strict=True)]
        for one in found
    ]
    return {name: torch.stack([one[i] for one in filled]) for i, name in enumerate(parameters)}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_kind_is_proven_and_gives_the_squares_of_plain_autograd(row: Row) -> None:
    problem = problem_of(row)
    layer = facts_of(problem).layer(row.layer)
    assert layer.reason == ""
    assert (layer.exact, layer.kind.name, layer.parameters) == (True, row.kind, row.parameters)
    assert layer.gauss_newton == row.gauss_newton
    assert layer.multiplies == row.multiplies
    assert layer.positions == row.positions
    gradients = ExampleGradients(problem, [layer])
    run = gradients.capture(next(iter(problem.batches)))
    cotangents = [torch.randn(N, 3, dtype=torch.float64) for _ in range(2)]
    truth = [example_gradients(problem, c) for c in cotangents]
    norms = gradients.squares(run, cotangents, entries=False)
    entries = gradients.squares(run, cotangents, entries=True)
    for name in row.parameters:
        squares = sum(one[name].square() for one in truth)
        assert isinstance(squares, Tensor)
        assert float(squares.abs().max()) > 0
        torch.testing.assert_close(norms[name], squares.flatten(1).sum(1), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(entries[name], squares.sum(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("row", [row for row in TABLE if row.multiplies], ids=lambda row: row.name)
def test_patches_times_weight_are_the_outputs(row: Row) -> None:
    problem = problem_of(row)
    known = facts_of(problem).layer(row.layer)
    (layer,) = capture(problem, next(iter(problem.batches)), [row.layer]).layers
    assert isinstance(layer.kind, MatrixKind)
    assert layer.roles.weight is not None
    x = known.patches(layer)
    weight = layer.kind.as_matrix(layer.roles.weight).reshape(known.groups, -1, known.inputs)
    z = torch.einsum("upgn,gmn->upgm", x, weight).flatten(2)
    z = z if layer.roles.bias is None else z + layer.roles.bias
    torch.testing.assert_close(z, known.units(layer.z.detach()), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(known.raw(known.units(layer.z), layer.z), layer.z)


class Net(nn.Module):
    """Two linear layers, and whatever a test does between and after them."""

    def __init__(self, run: Callable[[Net, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


NOT_LAYERS = {
    "used again by F.linear": (lambda n, x: n.b(torch.tanh(F.linear(n.a(x), n.a.weight))), "a.weight"),
    "used in a penalty": (lambda n, x: n.b(torch.tanh(n.a(x))) * (1 + n.a.weight.square().sum()), "a.weight"),
    "hidden penalty at its minimum": (
        lambda n, x: n.b(torch.tanh(n.a(x))) + (n.a.weight - n.a.weight.detach()).square().sum() * x[:, :1],
        "a.weight",
    ),
    "called twice": (lambda n, x: n.b(n.a(torch.tanh(n.a(x)))), "a.weight"),
    "transposed": (lambda n, x: n.b(torch.tanh(x @ n.a.weight)), "a.weight"),
}


@pytest.mark.parametrize("name", NOT_LAYERS)
def test_a_weight_that_acts_elsewhere_belongs_to_no_exact_layer(name: str) -> None:
    run, parameter = NOT_LAYERS[name]
    torch.manual_seed(0)
    problem = hs.Problem.of(Net(run).double(), "cross_entropy", (torch.randn(N, 4).double(), torch.randint(0, 3, (N,))))
    facts = facts_of(problem)
    assert parameter not in facts.covered(tuple(problem.parameters))
    assert facts.reasons[parameter]


APART = {
    "batch mean": lambda n, x: n.b(torch.tanh(n.a(x) - n.a(x).mean(0))),
    "cumulative mean": lambda n, x: n.b(torch.tanh(n.a(x.cumsum(0)))),
    "cumulative mean from the end": lambda n, x: n.b(torch.tanh(n.a(x.flip(0).cumsum(0).flip(0)))),
    "sorted": lambda n, x: n.b(torch.tanh(n.a(x.sort(0).values))),
    "branch on the batch size": lambda n, x: n.b(torch.tanh(n.a(x)) if len(x) > 5 else n.a(x)),
}


@pytest.mark.parametrize("name", APART)
def test_examples_that_see_each_other_are_never_taken_apart(name: str) -> None:
    torch.manual_seed(0)
    problem = hs.Problem.of(
        Net(APART[name]).double(), "cross_entropy", (torch.randn(N, 4).double(), torch.randint(0, 3, (N,)))
    )
    assert facts_of(problem).exact == []


def test_a_layer_that_autocast_runs_in_another_type_is_not_exact() -> None:
    def run(net: Net, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = net.a(x)
        return net.b(torch.tanh(h.float()))

    problem = hs.Problem.of(Net(run), "cross_entropy", (torch.randn(N, 4), torch.randint(0, 3, (N,))))
    facts = facts_of(problem)
    assert "autocast" in facts.layers["a"].reason
    assert [layer.name for layer in facts.exact] == ["b"]


def test_a_layer_that_is_given_nothing_but_zeros_has_a_hessian_of_zeros() -> None:
    net = Net(lambda n, x: n.b(torch.relu(n.a(x) - 100.0))).double()
    problem = hs.Problem.of(net, "cross_entropy", (torch.randn(N, 4).double(), torch.randint(0, 3, (N,))))
    assert not bool(hs.layer_hessian(problem, "b").dense().any())


@pytest.mark.parametrize(("tokens", "each"), [([1] * 8, True), ([2, 2, 2, 2, 0, 0, 0, 0], False), ([2, 0] * 4, False)])
def test_rows_of_the_loss_are_examples_only_where_each_has_one(tokens: list[int], each: bool) -> None:
    model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 5))
    texts, labels = torch.randint(0, 20, (8, 2)), torch.full((8, 2), -100)
    for label, counted in zip(labels, tokens, strict=True):
        label[:counted] = torch.randint(0, 5, (counted,))
    problem = hs.Problem.of(model, nn.CrossEntropyLoss(), (texts, labels))
    assert facts_of(problem).rows_are_examples == each
