"""Models that keep things between passes: every pass begins alike, and nothing that was computed before is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

import hesscope as hs
from hesscope.errors import InputError

DRAW = hs.Rng(9).torch()
X = torch.randn(8, 3, generator=DRAW, dtype=torch.float64)
Y = torch.randint(0, 3, (8,), generator=DRAW)


class Keeping(nn.Module):
    """tanh of one layer, then another; `run` says what is kept."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.run, self.a, self.b = run, nn.Linear(3, 3), nn.Linear(3, 3)
        self.kept: Any = None
        self.calls, self.seen = 0, [1.0]
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def counts(s: Any, x: Tensor) -> Tensor:
    s.calls += 1
    return s.b(torch.tanh(s.a(x))) * (1 if s.calls < 6 else 2)


def collects(s: Any, x: Tensor) -> Tensor:
    s.seen.append(0.1)
    return s.b(torch.tanh(s.a(x))) * sum(s.seen)


def keeps_a_weight(s: Any, x: Tensor) -> Tensor:
    if s.kept is None:
        s.kept = 2 * s.a.weight
    return s.b(torch.tanh(F.linear(x, s.kept, s.a.bias)))


def keeps_activations(s: Any, x: Tensor) -> Tensor:
    if s.kept is None or len(s.kept) != len(x):
        s.kept = torch.tanh(s.a(x))
    return s.b(s.kept)


def truth(model: nn.Module) -> Tensor:
    """Double backward of one pass of a model as it is."""
    weights = list(model.parameters())
    first = torch.autograd.grad(F.cross_entropy(model(X), Y), weights, create_graph=True)
    rows = [torch.autograd.grad(g, weights, retain_graph=True) for t in first for g in t.reshape(-1)]
    return torch.stack([torch.cat([t.reshape(-1) for t in row]) for row in rows])


@pytest.mark.parametrize("run", [counts, collects, keeps_a_weight, keeps_activations])
def test_every_pass_begins_alike(run: Callable[[Any, Tensor], Tensor]) -> None:
    model = Keeping(run)
    problem, moved = hs.Problem.of(model, "cross_entropy", (X, Y)), Keeping(run)
    for method in ("kept", "batched"):
        found = hs.Hessian(problem, method).dense()
        assert torch.allclose(found, truth(Keeping(run)), atol=1e-10)
    assert torch.allclose(hs.dense_hessian(problem), truth(Keeping(run)), atol=1e-10)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.mul_(1.5)
    there = problem.at({name: t.detach() for name, t in moved.named_parameters()})
    assert torch.allclose(hs.dense_hessian(there), truth(moved), atol=1e-10)
    assert (model.calls, model.seen, model.kept) == (0, [1.0], None)


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).T


def test_parametrisations_that_torch_caches_follow_the_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    expected = truth(model)
    with parametrize.cached():
        model(X)
        problem = hs.Problem.of(model, "cross_entropy", (X, Y))
        assert torch.allclose(hs.dense_hessian(problem), expected, atol=1e-10)
        weight = model[0].weight
        assert model[0].weight is weight  # the user's own cache is as it was


def _of_a_pass() -> nn.Module:
    model = Keeping(keeps_a_weight)
    model(X)
    return model


def _of_a_view() -> nn.Module:
    model = Keeping(lambda s, x: torch.tanh(s.a(x)) @ s.kept)
    model.kept = model.a.weight.T
    return model


def _of_a_list() -> nn.Module:
    model = Keeping(lambda s, x: torch.tanh(s.a(x)) @ s.kept["weights"][0])
    model.kept = {"weights": [model.a.weight * 2]}
    return model


@pytest.mark.parametrize("make", [_of_a_pass, _of_a_view, _of_a_list])
def test_what_was_computed_from_the_parameters_before_is_refused(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(InputError, match="in every pass; got 'kept', which was computed from them before"):
        hs.Problem.of(make(), "cross_entropy", (X, Y))


ELSEWHERE: dict[Any, Tensor] = {}


def keeps_elsewhere(s: Any, x: Tensor) -> Tensor:
    if s not in ELSEWHERE:
        ELSEWHERE[s] = 2 * s.a.weight
    return s.b(torch.tanh(F.linear(x, ELSEWHERE[s], s.a.bias)))


def test_what_is_kept_outside_of_the_model_is_refused() -> None:
    with pytest.raises(InputError, match=r"in every pass; got 'a\.weight', which the first pass used"):
        hs.Problem.of(Keeping(keeps_elsewhere), "cross_entropy", (X, Y))


def branches(s: Any, x: Tensor) -> Tensor:
    return s.b(torch.tanh(s.a(x))) if len(x) > 2 else s.b(torch.tanh(x))


def test_parts_that_a_few_examples_do_not_use_are_no_harm() -> None:
    problem = hs.Problem.of(Keeping(branches), "cross_entropy", (X, Y))
    assert torch.allclose(hs.Hessian(problem, unchecked=True).dense(), truth(Keeping(branches)), atol=1e-10)


def makes_a_buffer(s: Any, x: Tensor) -> Tensor:
    if not hasattr(s, "size"):
        s.register_buffer("size", x.detach().abs().mean())
    return s.b(torch.tanh(s.a(x / s.size)))


def test_models_that_are_not_finished_are_refused() -> None:
    model = Keeping(makes_a_buffer)
    with pytest.raises(InputError, match="got 'size', which its forward pass makes"):
        hs.Problem.of(model, "cross_entropy", (X, Y))
    model(X)
    problem = hs.Problem.of(model, "cross_entropy", (X, Y))
    assert torch.allclose(hs.dense_hessian(problem), truth(model), atol=1e-10)


def test_what_was_computed_before_and_is_not_used_is_no_harm() -> None:
    model = Keeping(lambda s, x: s.b(torch.tanh(s.a(x))))
    model.kept = [model.a.weight * 2]
    problem = hs.Problem.of(model, "cross_entropy", (X, Y))
    assert torch.allclose(hs.dense_hessian(problem), truth(model), atol=1e-10)
