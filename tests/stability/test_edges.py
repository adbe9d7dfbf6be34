"""Edges against the spectral radius of what torch's optimisers really do to a quadratic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import hesscope as hs
from hesscope.step_stability import Preconditioned, read_optimizer
from stability.quadratics import FROZEN, Quadratic, prepare, problem_of, radius

ADAM: dict[str, Any] = {"lr": 0.02, "betas": (0.9, FROZEN)}

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "gd": lambda p: optim.SGD(p, lr=0.1),
    "gd decay": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.3),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "momentum foreach": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "dampening": lambda p: optim.SGD(p, lr=0.1, momentum=0.8, dampening=0.4, weight_decay=0.2),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.2),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.02, alpha=FROZEN),
    "rmsprop centered momentum": lambda p: optim.RMSprop(
        p, lr=0.02, alpha=FROZEN, centered=True, momentum=0.7, weight_decay=0.1
    ),
    "adam": lambda p: optim.Adam(p, **ADAM),
    "adam fused": lambda p: optim.Adam(p, **ADAM, fused=True),
    "adam decay amsgrad": lambda p: optim.Adam(p, **ADAM, weight_decay=0.5, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, **ADAM, weight_decay=0.8),
    "adamw tensor rate": lambda p: optim.AdamW(p, lr=torch.tensor(0.02), betas=(0.95, FROZEN)),
    "nadam": lambda p: optim.NAdam(p, **ADAM, weight_decay=0.3),
    "nadam decoupled": lambda p: optim.NAdam(p, **ADAM, weight_decay=0.3, decoupled_weight_decay=True),
    "radam": lambda p: optim.RAdam(p, **ADAM, weight_decay=0.3),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, weight_decay=0.2),
    "adamax": lambda p: optim.Adamax(p, **ADAM, weight_decay=0.2),
    "adadelta": lambda p: optim.Adadelta(p, lr=0.5, rho=FROZEN),
}


def _critical(model: Quadratic, optimizer: optim.Optimizer) -> float:
    """The factor on all rates at which the reading says that the run turns unstable."""
    state = read_optimizer(problem_of(model), optimizer)
    top = hs.eigenpairs(Preconditioned(hs.Hessian(problem_of(model)), state), 1)
    return state.critical_rate(float(top.values[0])) / state.rate


def _crosses(model: Quadratic, optimizer: optim.Optimizer) -> None:
    critical = _critical(model, optimizer)
    assert radius(optimizer, model, 0.999 * critical) < 1
    assert radius(optimizer, model, 1.001 * critical) > 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_edge_is_where_the_real_step_turns_unstable(name: str) -> None:
    model = Quadratic(len(name))
    optimizer = OPTIMIZERS[name](model.parameters())
    prepare(optimizer, model)
    _crosses(model, optimizer)


@pytest.mark.parametrize("name", ["adam", "adamw", "nadam", "adamax", "radam"])
@pytest.mark.parametrize("steps", [3, 40])
def test_early_steps_with_their_bias_corrections(name: str, steps: int) -> None:
    model = Quadratic(1)
    betas = (0.9, 0.999) if name == "radam" else (0.9, FROZEN)
    kind = {
        "adam": optim.Adam,
        "adamw": optim.AdamW,
        "nadam": optim.NAdam,
        "adamax": optim.Adamax,
        "radam": optim.RAdam,
    }
    optimizer = kind[name](model.parameters(), lr=0.02, betas=betas)
    prepare(optimizer, model, steps)
    if name == "nadam":
        mu = [0.9 * (1 - 0.5 * 0.96 ** (t * 0.004)) for t in range(1, steps + 1)]
        for p in model.parameters():
            optimizer.state[p]["mu_product"] = torch.tensor(mu, dtype=torch.float64).prod()
    critical = _critical(model, optimizer)
    # What is read is the step last taken: to take it again the count goes back by one.
    for p in model.parameters():
        optimizer.state[p]["step"] -= 1
        if name == "nadam":
            optimizer.state[p]["mu_product"] = torch.tensor(mu[:-1], dtype=torch.float64).prod()
        if name == "radam":
            optimizer.state[p]["exp_avg_sq"] /= 0.999
    assert radius(optimizer, model, 0.995 * critical) < 1
    assert radius(optimizer, model, 1.005 * critical) > 1


@pytest.mark.parametrize("seed", range(4))
def test_groups_of_their_own_rates_momenta_and_decays(seed: int) -> None:
    """No closed form in each mode, but the edge is exact all the same."""
    model = Quadratic(seed)
    draw = torch.Generator().manual_seed(seed)

    def number(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=draw))

    groups = [
        {
            "params": [p],
            "lr": number(0.01, 0.1),
            "betas": (number(0, 0.97), FROZEN),
            "weight_decay": number(0, 3),
        }
        for p in model.parameters()
    ]
    optimizer: optim.Optimizer = optim.AdamW(groups) if seed % 2 else optim.NAdam(groups, decoupled_weight_decay=True)
    prepare(optimizer, model)
    _crosses(model, optimizer)
    sgd = optim.SGD(
        [
            {"params": [model.a], "momentum": 0.9, "nesterov": True},
            {"params": [model.b], "momentum": 0.5, "dampening": 0.3, "weight_decay": 0.7},
            {"params": [model.c], "lr": 0.4},
        ],
        lr=0.1,
    )
    prepare(sgd, model)
    _crosses(model, sgd)


def test_maximising_the_negative_is_the_same_run() -> None:
    model = Quadratic(3)
    optimizer = optim.Adam(model.parameters(), **ADAM, weight_decay=0.4)
    prepare(optimizer, model)
    negative = hs.Problem.of(model, lambda m: -m.value())
    climbing = optim.Adam(model.parameters(), **ADAM, weight_decay=0.4, maximize=True)
    climbing.load_state_dict(optimizer.state_dict())
    climbing.param_groups[0]["maximize"] = True
    found = [
        hs.eigenpairs(Preconditioned(hs.Hessian(problem), read_optimizer(problem, used)), 1).values[0]
        for problem, used in ((problem_of(model), optimizer), (negative, climbing))
    ]
    assert found[1] == pytest.approx(found[0], rel=1e-9)


def test_formulas_in_the_words_of_the_literature() -> None:
    model = Quadratic()
    for optimizer, edge in (
        (optim.SGD(model.parameters(), lr=0.1), 2 / 0.1),
        (optim.SGD(model.parameters(), lr=0.1, momentum=0.9), 2 * 1.9 / 0.1),
        (optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True), 2 * 1.9 / (0.1 * 2.8)),
        (optim.Adam(model.parameters(), **ADAM), 2 * 1.9 / (0.1 * 0.02)),
        (optim.AdamW(model.parameters(), **ADAM, weight_decay=0.5), (2 - 0.01) * 1.9 / (0.1 * 0.02)),
    ):
        prepare(optimizer, model)
        assert read_optimizer(problem_of(model), optimizer).edge == pytest.approx(edge, rel=1e-12)


class Matrix(nn.Module):
    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(rows, columns, dtype=torch.float64))


@pytest.mark.parametrize(("rows", "columns"), [(5, 8), (8, 5)])
@pytest.mark.parametrize("adjust", [None, "match_rms_adamw"])
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.6}, {"momentum": 0.3, "nesterov": False}], ids=str)
def test_muon_linearised_takes_the_real_step_at_its_own_momentum(
    rows: int, columns: int, adjust: str | None, settings: dict[str, Any]
) -> None:
    """At a gradient equal to the momentum, the linear step is the real one, to the accuracy of bfloat16."""
    torch.manual_seed(0)
    model = Matrix(rows, columns)
    gradient = torch.randn(rows, columns, dtype=torch.float64)
    optimizer: Any = optim.Muon(model.parameters(), lr=0.1, weight_decay=0.0, adjust_lr_fn=adjust, **settings)
    model.w.grad = gradient.clone()
    for _ in range(200):
        optimizer.step()
    before = model.w.detach().clone()
    optimizer.step()
    real = model.w.detach() - before
    problem = hs.Problem.of(model, lambda m: 0.5 * (m.w**2).sum())
    state = read_optimizer(problem, optimizer)
    assert state.name == "Muon (linearised)"
    operator = Preconditioned(hs.Hessian(problem), state)
    once = operator.root(gradient.reshape(-1, 1))
    predicted = -state.rate * operator.root(once).reshape(rows, columns)
    # bfloat16 rounds by 0.4 %, and five rounds of the polynomial make up to ten times that of it.
    assert float((predicted - real).norm() / real.norm()) < 0.04
    exact = -0.1 * (0.2 * 8**0.5 if adjust else max(1.0, rows / columns) ** 0.5) * _orthogonalised(gradient)
    assert float((predicted - exact).norm() / exact.norm()) < 1e-3  # the momentum is the gradient but for 0.95^200
    hs.testing.check_operator(operator)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("nesterov", [True, False])
def test_muons_edge_at_other_momenta(momentum: float, nesterov: bool) -> None:
    """The companion matrix of its recursion, written down by hand with the matrix of Newton-Schulz held, crosses there."""
    torch.manual_seed(3)
    rows, columns, rate, decay = 3, 5, 0.05, 0.8
    n = rows * columns
    root = torch.randn(n, n, dtype=torch.float64)
    curvature = root @ root.T / n + 0.05 * torch.eye(n, dtype=torch.float64)
    model = Matrix(rows, columns)
    optimizer: Any = optim.Muon(
        model.parameters(), lr=rate, momentum=momentum, nesterov=nesterov, weight_decay=decay, adjust_lr_fn="original"
    )
    model.w.grad = torch.randn(rows, columns, dtype=torch.float64)
    optimizer.step()
    buffer = optimizer.state[model.w]["momentum_buffer"].double()
    problem = hs.Problem.of(model, lambda m: 0.5 * m.w.reshape(-1) @ curvature @ m.w.reshape(-1))
    state = read_optimizer(problem, optimizer)
    top = hs.eigenpairs(Preconditioned(hs.Hessian(problem), state), 1)
    critical = state.critical_rate(float(top.values[0])) / rate
    held = torch.kron(_orthogonalised(buffer) @ torch.linalg.pinv(buffer), torch.eye(columns, dtype=torch.float64))
    for factor, inside in ((0.999, True), (1.001, False)):
        eta, eye = factor * critical * rate, torch.eye(n, dtype=torch.float64)
        remembered = torch.cat([(1 - momentum) * curvature, momentum * eye], 1)  # the next buffer from (θ, buffer)
        gradient = torch.cat([curvature, torch.zeros_like(curvature)], 1)
        update = momentum * remembered + (1 - momentum) * gradient if nesterov else remembered
        moved = torch.cat([(1 - eta * decay) * eye, torch.zeros_like(eye)], 1) - eta * held @ update
        found = float(torch.linalg.eigvals(torch.cat([moved, remembered], 0)).abs().max())
        assert (found < 1) == inside


def _orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz as published, by products of matrices in float64."""
    x: torch.Tensor = matrix / matrix.norm()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x
