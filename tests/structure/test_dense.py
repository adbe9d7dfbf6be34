"""Dense matrices by structure against double backward, row by row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hesscope.curvature import GaussNewton, Problem
from hesscope.structure import dense_hessian
from hesscope.structure.exact.output_curvature import through_weight
from hesscope.structure.exact.stack import Structure
from properties import examples
from structure.networks import convolutional, data, language, mlp, problem, seeded


def double_backward(p: Problem) -> torch.Tensor:
    """Every row by a backward pass through the gradient of torch's own loss: shares no code with what is tested."""
    model = p.model
    weights = list(model.parameters())
    total = torch.zeros((), dtype=torch.float64)
    count = 0.0
    module = p.loss.module
    for x, y in p.batches:
        f = model(x)
        if isinstance(module, nn.CrossEntropyLoss):
            part = nn.functional.cross_entropy(
                f.flatten(0, -2), y.flatten(), module.weight, ignore_index=module.ignore_index, reduction="sum"
            )
            count += float((module.weight[y] if module.weight is not None else (y != module.ignore_index)).sum())
        else:
            part, count = ((f - y) ** 2).sum(), count + len(x)
        total = total + part
    gradient = torch.autograd.grad(total / count, weights, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in gradient])
    rows = torch.autograd.grad(flat, weights, torch.eye(len(flat)).double(), is_grads_batched=True)
    return torch.cat([r.reshape(len(flat), -1) for r in rows], 1)


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return float((a - b).abs().max()) <= 1e-12 * float(b.abs().max())


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
@pytest.mark.parametrize("widths", [(6, 4), (6, 5, 4)])
def test_four_cases_of_the_paper_equal_double_backward(widths: tuple[int, ...], loss: str) -> None:
    p = problem(mlp(*widths), loss)
    assert Structure.of(p).others == ()
    assert close(dense_hessian(p), double_backward(p))


@examples(10)
@given(
    widths=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    classes=st.sampled_from([2, 5, 64]),
    bias=st.booleans(),
    loss=st.sampled_from(["cross_entropy", "squared_error"]),
    activation=st.sampled_from([nn.ReLU, nn.Tanh, nn.GELU]),
)
def test_any_multilayer_network(widths: list[int], classes: int, bias: bool, loss: str, activation: type) -> None:
    model = mlp(3, *widths, classes, activation=activation, bias=bias)
    p = problem(model, loss, 3, classes)
    assert Structure.of(p).others == ()
    assert close(dense_hessian(p), double_backward(p))
    # GaussNewton stops at the outputs; only its own engine is an independent truth here.
    assert close(dense_hessian(p, "gauss_newton"), GaussNewton(p).dense())


def test_what_is_not_linear_comes_from_products() -> None:
    x, y = data("cross_entropy")
    model = seeded(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 4)))
    p = Problem.of(model, "cross_entropy", (x, y), batch_size=10)
    assert Structure.of(p).others == ("2.weight", "2.bias")
    assert close(dense_hessian(p), double_backward(p))


def test_convolutions_need_products_only_for_themselves() -> None:
    p = convolutional()
    assert Structure.of(p).others == ("0.weight", "0.bias")
    assert close(dense_hessian(p), double_backward(p))


def test_class_weights_and_ignored_labels() -> None:
    x, y = data("cross_entropy")
    y[::3] = 2
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    p = Problem.of(mlp(6, 5, 4), nn.CrossEntropyLoss(weight=weight), (x, y), batch_size=10)
    assert close(dense_hessian(p), double_backward(p))
    ignored = y.clone()
    ignored[::3] = -100
    q = Problem.of(mlp(6, 5, 4), nn.CrossEntropyLoss(), (x, ignored), batch_size=10)
    assert Structure.of(q).has_output
    assert close(dense_hessian(q), double_backward(q))


def test_attention_and_tokens() -> None:
    p = language()
    found = Structure.of(p)
    assert [layer.name for layer in found.layers] == ["head"]
    assert close(dense_hessian(p), double_backward(p))


@pytest.mark.parametrize("mix", [lambda h: h - h.mean(0), lambda h: h + 0.1 * h.roll(8, 0)])
def test_examples_that_see_each_other_are_not_structured(mix: Any) -> None:
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(mix(torch.tanh(self.first(x))))

    p = Problem.of(seeded(Mixing()), "cross_entropy", data("cross_entropy"), batch_size=100)
    assert Structure.of(p).layers == ()
    assert close(dense_hessian(p), double_backward(p))


def test_weights_used_outside_their_module_are_not_structured() -> None:
    class Borrowed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 5, bias=False), nn.Linear(5, 4, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.tanh(self.first(x))
            return self.second(h) + (h @ self.second.weight.T).square()

    p = Problem.of(seeded(Borrowed()), "cross_entropy", data("cross_entropy"), batch_size=100)
    assert [layer.name for layer in Structure.of(p).layers] == ["first"]
    assert close(dense_hessian(p), double_backward(p))


@pytest.mark.parametrize("tied", [False, True])
def test_tied_and_twice_used_layers_are_not_structured(tied: bool) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.out = nn.Linear(6, 6, bias=False), nn.Linear(6, 4)
            self.again = nn.Linear(6, 6, bias=False) if tied else self.inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(torch.tanh(self.again(torch.tanh(self.inner(x)))))

    model = seeded(Twice())
    model.again.weight = model.inner.weight
    p = Problem.of(model, "cross_entropy", data("cross_entropy"), batch_size=10)
    assert [layer.name for layer in Structure.of(p).layers] == ["out"]
    assert close(dense_hessian(p), double_backward(p))


def test_selected_parameters_only() -> None:
    p = problem(mlp(6, 5, 4, bias=True), "cross_entropy")
    whole = dense_hessian(p)
    part = p.select(["0.bias", "2.weight"])
    keep = p.space.indices(["0.bias", "2.weight"])
    assert close(dense_hessian(part), whole[keep][:, keep])


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
@pytest.mark.parametrize("decided", [False, True])
def test_hidden_layers_alone_see_the_loss_through_the_output_matrix(loss: str, decided: bool) -> None:
    model = mlp(6, 5, 3, 7, activation=nn.Tanh, bias=True)
    if decided:
        model.get_parameter("4.bias").data[0] = 30
    p = problem(model, loss, classes=7)
    part = p.select(["0.*", "2.*"])
    structure = Structure.of(part)
    seen = structure.watch(next(iter(part.batches)))
    assert structure.head == "4"
    assert seen.head is not None
    # The curvature of rows that are all but decided is a small difference, so these go the long way.
    assert (through_weight(seen.terms, seen.head[1]) is None) == (decided and loss == "cross_entropy")
    keep = p.space.indices(["0.*", "2.*"])
    assert close(dense_hessian(part), double_backward(p)[keep][:, keep])


def test_saturated_softmax_keeps_its_digits_in_float32() -> None:
    # p(1 - p) of the top class is 2 e^-20: a difference of two numbers near one would lose all of it.
    x, y = torch.ones(3, 1), torch.tensor([0, 1, 2])
    model = nn.Sequential(nn.Linear(1, 3, bias=False))
    model[0].weight.data = torch.tensor([[20.0], [0.0], [0.0]])
    single = dense_hessian(Problem.of(model, "cross_entropy", (x, y)))
    exact = dense_hessian(Problem.of(model.double(), "cross_entropy", (x.double(), y)))
    torch.testing.assert_close(single.double(), exact, rtol=1e-5, atol=0)
