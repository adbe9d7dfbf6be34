"""Where spikes begin: the bisection, and runs whose loss or step is replaced."""

from __future__ import annotations

import math

import pytest
import torch

from hesscope.experiments.edges._models_of_runs import FrozenStep, QuadraticLoss, RealLoss, TorchStep, losses_of
from hesscope.experiments.edges._runs import FullBatchRun, task_of
from hesscope.experiments.edges.onset import bisected, spikes
from hesscope.rng import Rng
from hesscope.step_stability import read_optimizer


@pytest.mark.parametrize("truth", [0.03, 0.9, 1.0, 7.0])
def test_the_onset_is_found_on_either_side(truth: float) -> None:
    found = bisected(lambda rate: rate > truth, 1.0)
    assert truth / 1.15 <= found <= 1.15 * truth
    assert bisected(lambda rate: False, 1.0) == math.inf
    assert bisected(lambda rate: True, 1.0) == 0.0


def test_a_spike_is_a_tenth_above_or_not_finite() -> None:
    assert not spikes([0.5, 1.09], 1.0)
    assert spikes([0.5, 1.11, 0.2], 1.0)
    assert spikes([math.nan], 1.0)


@pytest.mark.parametrize("optimizer", ["gd", "momentum", "rmsprop"])
def test_parts_that_are_replaced_are_the_run_itself_to_first_order(optimizer: str) -> None:
    """The real loss under the real step is the continued run; quadratic losses and frozen steps agree where they must."""
    run = FullBatchRun(task_of("mlp", 40, None, Rng(0)), optimizer, 1e-3)
    for group in run.optimizer.param_groups:
        group.update({"eps": 1e-2} if "eps" in group else {})  # pixels that are never lit have no second moment
    for _ in range(4):
        run.step()
    rate, real, problem = 2e-3, RealLoss(run), run.problem()
    found = list(losses_of(real, TorchStep(run, rate), 5))
    assert found == pytest.approx(run.continued(rate, 5), rel=1e-5)
    quadratic = QuadraticLoss(problem)
    d = torch.randn(problem.space.size, generator=torch.Generator().manual_seed(0)) / 50
    value, slope = quadratic.at(d)
    parameters = list(run.model.parameters())
    first = torch.autograd.grad(run.loss(), parameters, create_graph=True)
    g = torch.cat([piece.reshape(-1) for piece in first])
    bent = torch.cat([piece.reshape(-1) for piece in torch.autograd.grad(g @ d, parameters)])
    torch.testing.assert_close(slope, g.detach() + bent, rtol=1e-4, atol=1e-6)
    assert value == pytest.approx(float((run.loss() + g @ d + bent @ d / 2).detach()), rel=1e-5)
    held = FrozenStep(run, read_optimizer(problem, run.optimizer), rate)
    for group in run.optimizer.param_groups:
        if "alpha" in group:
            group["alpha"] = 1 - 1e-12  # torch's own second moments stand still then
    assert list(losses_of(real, held, 5)) == pytest.approx(run.continued(rate, 5), rel=1e-5)
