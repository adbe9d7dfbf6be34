from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import hesscope as hs
from curvature.cases import CASES, WrongSquare
from hesscope.curvature import self_check


class Wraps(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function.apply(x)


def net(middle: nn.Module) -> hs.Problem:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), middle, nn.Linear(5, 2))
    return hs.Problem.of(model, "mse", (torch.randn(20, 3), torch.randn(20, 2)))


@pytest.mark.parametrize("name", CASES)
def test_right_models_pass(name: str) -> None:
    problem = CASES[name](torch.float32).problem
    verdict = hs.check(problem)
    assert verdict.passed, str(verdict)
    assert verdict.agreement <= 1e-6
    assert verdict.symmetry < 1e-12
    assert verdict.linearity < 1e-12
    assert 0 < verdict.noise_floor < 1e-4
    assert hs.trace(hs.Hessian(problem), tol=0.3).check == str(verdict)


def test_a_silently_wrong_module_is_found_and_named() -> None:
    verdict = hs.check(net(Wraps(WrongSquare)))
    assert not verdict.passed
    assert len(verdict.faulty_modules) == 1
    assert verdict.faulty_modules[0].startswith("1 (Wraps): its second derivative is off by")
    assert str(verdict).startswith("FAILED")


def test_a_module_without_second_derivative_is_named() -> None:
    model = nn.Sequential(nn.EmbeddingBag(9, 4), nn.Linear(4, 2))
    problem = hs.Problem.of(model, "mse", (torch.randint(0, 9, (12, 3)), torch.randn(12, 2)))
    with pytest.raises(hs.errors.DerivativeError, match=r"0 \(EmbeddingBag\): no second derivative"):
        hs.Hessian(problem) @ torch.ones(problem.space.size)
    verdict = hs.check(problem)
    assert not verdict.passed
    assert verdict.faulty_modules[0].startswith("0 (EmbeddingBag): no second derivative")


def test_unused_parameters_are_reported_and_give_zero_blocks() -> None:
    class Extra(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    problem = hs.Problem.of(Extra(), "mse", (torch.randn(8, 3), torch.randn(8, 2)))
    assert hs.check(problem).unused_parameters == ("unused.weight", "unused.bias")
    H = hs.Hessian(problem).dense()
    assert float(H[problem.space.indices("unused.*")].abs().max()) == 0.0
    assert float(H[problem.space.indices("used.*")].abs().max()) > 0.0


def padded() -> hs.Problem:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(6, 4, padding_idx=0), nn.Flatten(), nn.Tanh(), nn.Linear(12, 3)).double()
    with torch.no_grad():
        model[0].weight[0] = torch.randn(4)
    x = torch.randint(1, 6, (80, 3))
    x[-5:, 2] = 0  # no padding among the first examples
    return hs.Problem.of(model, "cross_entropy", (x, torch.arange(80) % 3))


def smoothed() -> hs.Problem:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    y = torch.arange(80) % 3
    y[-20:] = -100
    return hs.Problem.of(model, nn.CrossEntropyLoss(label_smoothing=0.2), (torch.randn(80, 4).double(), y))


@pytest.mark.parametrize("make", [padded, smoothed])
def test_choosing_the_fastest_method_changes_no_number(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "_FASTER", float("inf"))  # whatever is right is chosen
    problem = make()
    v = torch.randn(problem.space.size).double()
    before = hs.Hessian(problem) @ v
    verdict = hs.check(problem)
    assert verdict.passed
    assert torch.allclose(hs.Hessian(problem) @ v, before, atol=1e-12, rtol=1e-9)


def test_a_check_leaves_autograd_as_it_was() -> None:
    """Tracing a quantile switched autograd off for the rest of the process."""

    class Quantiles(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.quantile(0.3, -1, keepdim=True)

    model = nn.Sequential(nn.Linear(3, 4), Quantiles(), nn.Linear(1, 2)).double()
    problem = hs.Problem.of(model, "mse", (torch.randn(6, 3).double(), torch.randn(6, 2).double()))
    gone: Any = "linearize"
    with pytest.raises(hs.errors.InputError, match="method must be auto, kept, batched or half"):
        hs.Hessian(problem, method=gone)
    assert hs.check(problem).passed
    assert (torch.ones(2, requires_grad=True) * 2).requires_grad
    assert float((hs.Hessian(problem) @ torch.ones(problem.space.size).double()).norm()) > 0


def test_times_are_relative_to_kept() -> None:
    methods = {m.name: m for m in hs.check(CASES["mlp"]().problem).methods}
    assert methods["kept"].relative_time == 1.0
    assert 0.02 < methods["batched"].relative_time < 50


def test_a_check_costs_at_most_ten_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 5))
    problem = hs.Problem.of(model, "cross_entropy", (torch.randn(160, 20), torch.arange(160) % 5))
    problem.loss_value()
    with FlopCounterMode(display=False) as gradient:
        problem.gradient()
    with FlopCounterMode(display=False) as checking:
        hs.check(problem)
    assert checking.get_total_flops() <= 10 * gradient.get_total_flops()


def test_plan_names_cost_before_running() -> None:
    model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 3))
    problem = hs.Problem.of(model, "cross_entropy", (torch.randn(30, 20), torch.arange(30) % 3))
    hs.plan(problem, "eigenpairs", k=2)  # the first one also counts what the problem keeps from then on
    short, long = hs.plan(problem, "eigenpairs", k=2), hs.plan(problem, "eigenpairs", k=8)
    assert 0 < short.products < long.products <= problem.space.size
    assert long.seconds > 0
    # Holes in the heap are a quarter of what is alive in it.
    assert long.bytes - short.bytes == pytest.approx(1.25 * (long.basis_bytes - short.basis_bytes), abs=2)
    assert long.basis_bytes > short.basis_bytes
    assert long.bytes > long.graph_bytes + long.basis_bytes
    with pytest.raises(hs.errors.InputError, match="the task must be known"):
        hs.plan(problem, "everything")
