"""Which tensor of an optimiser is which parameter, and what is read of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn, optim

import hesscope as hs
from hesscope.errors import InputError
from hesscope.step_stability import Preconditioned, read_edge, read_optimizer

X = torch.linspace(-1, 1, 60).reshape(12, 5).sin()
Y = torch.arange(12) % 3


class Tied(nn.Module):
    """Two names for one matrix, and a parameter that does not train."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5, bias=False)
        self.second = nn.Linear(5, 5, bias=False)
        self.second.weight = self.first.weight
        self.shift = nn.Parameter(torch.zeros(5), requires_grad=False)
        self.out = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(torch.tanh(self.second(torch.tanh(self.first(x)))) + self.shift)
        return out


def trained(model: nn.Module, optimizer: Any, steps: int = 4) -> hs.Problem:
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(X), Y))
        optimizer.step()
    return hs.Problem.of(model, "cross_entropy", (X, Y))


def made(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def test_tied_and_frozen_parameters_are_found_by_identity() -> None:
    torch.manual_seed(0)
    model = Tied()
    # In an order of its own, so that only identity can tell.
    optimizer = optim.Adam([model.out.bias, model.first.weight, model.out.weight, model.shift], lr=0.1)
    problem = trained(model, optimizer)
    state = read_optimizer(problem, optimizer)
    expected = []
    for name in problem.space.names:
        v = optimizer.state[dict(model.named_parameters())[name]]["exp_avg_sq"].double()
        expected.append(1 / ((v / (1 - 0.999**4)).sqrt() + 1e-8).reshape(-1))
    torch.testing.assert_close(state.inverse_preconditioner, torch.cat(expected))
    part = read_optimizer(problem.select("out.*"), optimizer)
    torch.testing.assert_close(part.inverse_preconditioner, torch.cat(expected)[25:])


def test_the_operator_is_the_dense_product() -> None:
    model = made()
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    problem = trained(model, optimizer).cast(torch.float64)
    state = read_optimizer(problem, optimizer)
    root = state.inverse_preconditioner.sqrt()
    dense = root[:, None] * hs.Hessian(problem).dense() * root
    operator = Preconditioned(hs.Hessian(problem), state)
    torch.testing.assert_close(operator.dense(), dense)
    reading = read_edge(problem, optimizer, k=2, tol=1e-8)
    top = torch.linalg.eigvalsh(dense).flip(0)
    assert reading.top.values == pytest.approx(top[:2].numpy(), rel=1e-6)
    assert reading.ratio == pytest.approx(float(top[0]) / reading.edge)
    assert reading.critical_rate == pytest.approx(reading.rate / reading.ratio)
    again = read_edge(problem, state, k=2, tol=1e-8, start=reading)
    assert again.ratio == pytest.approx(reading.ratio, rel=1e-6)


def test_a_state_dict_is_read_by_its_names_or_by_order() -> None:
    model = made()
    groups: list[dict[str, Any]] = [
        {"params": list(model[2].named_parameters(prefix="2")), "lr": 0.01},
        {"params": list(model[0].named_parameters(prefix="0"))},
    ]
    named = optim.AdamW(groups, lr=0.1)
    problem = trained(model, named)
    by_identity = read_optimizer(problem, named)
    by_name = read_optimizer(problem, named.state_dict())
    torch.testing.assert_close(by_name.inverse_preconditioner, by_identity.inverse_preconditioner)
    wrapped = named.state_dict()
    for group in wrapped["param_groups"]:
        group["param_names"] = [f"_orig_mod.module.{name}" for name in group["param_names"]]
    again = read_optimizer(problem, wrapped)
    torch.testing.assert_close(again.inverse_preconditioner, by_identity.inverse_preconditioner)
    plain = optim.RMSprop(model.parameters())
    problem = trained(model, plain)
    by_order = read_optimizer(problem, plain.state_dict())
    torch.testing.assert_close(by_order.inverse_preconditioner, read_optimizer(problem, plain).inverse_preconditioner)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("SGD", {"lr": 0.1, "momentum": 0.5}),
        ("RMSprop", {}),
        ("Adam", {"weight_decay": 0.1}),
        ("AdamW", {}),
        ("NAdam", {}),
        ("RAdam", {}),
        ("Adamax", {}),
        ("Adagrad", {}),
        ("Adadelta", {}),
    ],
)
def test_a_state_dict_tells_its_optimiser(kind: str, settings: dict[str, Any]) -> None:
    model = made()
    optimizer = getattr(optim, kind)(model.parameters(), **settings)
    problem = trained(model, optimizer)
    assert read_optimizer(problem, optimizer.state_dict()).name == read_optimizer(problem, optimizer).name == kind


def test_muon_beside_adamw() -> None:
    model = made()
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    both: list[Any] = [optim.Muon(matrices, lr=0.02), optim.AdamW(others, lr=0.01)]
    for _ in range(3):
        model.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(X), Y))
        for optimizer in both:
            optimizer.step()
    problem = hs.Problem.of(model, "cross_entropy", (X, Y))
    reading = read_edge(problem, both)
    assert reading.optimizer == "Muon (linearised) + AdamW"
    assert 0 < reading.critical_rate < float("inf")


def test_scaling_and_freezing_rates() -> None:
    """A rate halved in the state is a rate halved in the optimiser; a frozen tensor is out of the operator."""
    model = made()
    optimizer = optim.Adam([{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1)
    problem = trained(model, optimizer)
    state = read_optimizer(problem, optimizer)
    halved = state.scaled(["2.weight", "2.bias"], 0.5)
    optimizer.param_groups[1]["lr"] = 0.05
    direct = read_optimizer(problem, optimizer)
    torch.testing.assert_close(halved.inverse_preconditioner, direct.inverse_preconditioner)
    frozen = Preconditioned(hs.Hessian(problem), state.scaled(["2.weight", "2.bias"], 0.0)).dense()
    assert float(frozen[36:].abs().max()) == 0


def test_a_problem_from_before_the_step_is_refused() -> None:
    model = made()
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    before = trained(model, optimizer)
    trained(model, optimizer, 1)
    with pytest.raises(InputError, match="parameters that the optimiser holds now"):
        read_optimizer(before, optimizer)
    read_optimizer(before.at(model.state_dict()), optimizer)


def test_groups_without_names_are_told_apart_by_shapes() -> None:
    """As trainers save them: matrices in one group, vectors in another; where two ways fit, it is refused."""
    model = made()
    matrices, vectors = ([p for p in model.parameters() if p.ndim == n] for n in (2, 1))
    parts: list[dict[str, Any]] = [{"params": vectors, "weight_decay": 0.0}, {"params": matrices}]
    optimizer = optim.AdamW(parts, lr=0.1)
    problem = trained(model, optimizer)
    found = read_optimizer(problem, optimizer.state_dict()).inverse_preconditioner
    torch.testing.assert_close(found, read_optimizer(problem, optimizer).inverse_preconditioner)
    square = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3))
    halves: list[dict[str, Any]] = [
        {"params": square[0].parameters()},
        {"params": [*square[1].parameters(), *square[2].parameters()]},
    ]
    apart = optim.Adam(halves)
    problem = trained(square, apart)
    with pytest.raises(InputError, match="several ways"):
        read_optimizer(problem, apart.state_dict())
