from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from curvature.cases import CASES
from hesscope.layers import facts_of, known_traces
from hesscope.layers.known_traces import known_trace
from hesscope.linalg import Estimate


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1, stride=1, groups=2), nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norm(self.second(F.relu(self.first(x)))))


def piecewise_linear(loss: object, targets: Tensor) -> hs.Problem:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        Residual(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    ).double()
    x = torch.randn(10, 2, 9, 9, dtype=torch.float64)
    model(x)
    return hs.Problem.of(model.eval(), loss, (x, targets), batch_size=4)


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]).double()), torch.arange(10) % 3),
        (nn.MSELoss(), torch.linspace(-1, 1, 30).double().reshape(10, 3)),
        (nn.BCEWithLogitsLoss(reduction="sum"), (torch.arange(30) % 2).double().reshape(10, 3)),
    ],
)
def test_trace_and_diagonal_of_piecewise_linear_networks_are_exact(loss: nn.Module, targets: Tensor) -> None:
    problem = piecewise_linear(loss, targets)
    H = hs.Hessian(problem)
    dense = H.dense()
    trace, diagonal = hs.trace(H), hs.diagonal(H)
    assert trace.exact
    assert diagonal.exact
    assert float(trace.value) == pytest.approx(float(dense.trace()), rel=1e-10)
    assert np.allclose(diagonal.value, dense.diagonal().numpy(), rtol=1e-9, atol=1e-12 * float(dense.abs().max()))
    assert trace.products == 3  # one backward per column of the loss's factor


def test_smooth_networks_take_the_functional_part_by_products() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 40), nn.Tanh(), nn.Linear(40, 4)).double()
    problem = hs.Problem.of(model, "cross_entropy", (torch.randn(200, 16).double(), torch.arange(200) % 4))
    truth = float(hs.Hessian(problem).dense().trace())
    estimate = hs.Hessian(problem).known_trace(0.01, hs.Rng(0), None)
    assert estimate is not None
    assert not estimate.exact
    assert 0 < estimate.stderr <= 0.0101 * abs(truth)
    assert abs(estimate.value - truth) <= 4 * estimate.stderr
    gauss_newton = hs.GaussNewton(problem)
    exact = gauss_newton.known_trace(0.01, hs.Rng(0), None)
    assert exact is not None
    assert exact.exact
    assert exact.value == pytest.approx(float(gauss_newton.dense().trace()), rel=1e-10)


def test_tokens_and_tied_weights_are_covered_with_an_error_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows per example, LayerNorm, a tied embedding and a bare parameter: random columns and generic blocks."""
    monkeypatch.setattr(known_traces, "FEW", 0)  # so small a matrix is otherwise multiplied out
    problem = CASES["transformer"]().problem
    truth = float(hs.Hessian(problem).dense().trace())
    errors = []
    for seed in range(8):
        estimate = known_trace(hs.Hessian(problem), 0.3, hs.Rng(seed), None, with_functional=True)
        assert isinstance(estimate, Estimate)
        errors.append((estimate.value - truth) / estimate.stderr)
    assert np.abs(errors).max() < 4
    assert 0.4 < float(np.sqrt(np.mean(np.square(errors)))) < 1.7  # the error bars are neither too short nor too long


def test_what_counts_as_affine_in_each_parameter() -> None:
    def verdict(*layers: nn.Module, shape: tuple[int, ...] = (4, 6)) -> bool:
        data = (torch.randn(shape), torch.zeros(4, 6))
        problem = hs.Problem.of(nn.Sequential(*layers, nn.Flatten()), "mse", data)
        facts = facts_of(problem)
        affine = {name for layer in facts.exact if layer.gauss_newton for name in layer.parameters}
        return affine == set(problem.parameters)

    shared = nn.Linear(6, 6)
    assert verdict(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.LeakyReLU())
    assert verdict(nn.Linear(6, 6), nn.Hardtanh(), nn.BatchNorm1d(6).eval())
    assert not verdict(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6))
    assert not verdict(nn.Linear(6, 6), nn.LayerNorm(6))
    assert not verdict(shared, nn.ReLU(), shared)
    assert not verdict(nn.Linear(6, 6), nn.BatchNorm1d(6, track_running_stats=False).eval())


def test_examples_that_mix_are_not_taken_for_independent() -> None:
    class Mixes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x - x.mean(0)) - self.linear(x).mean(0)

    problem = hs.Problem.of(Mixes().double(), "mse", (torch.randn(6, 3).double(), torch.randn(6, 2).double()))
    H = hs.Hessian(problem)
    assert H.known_trace(0.01, hs.Rng(0), None) is None
    assert float(hs.trace(H).value) == pytest.approx(float(H.dense().trace()), rel=1e-10)
