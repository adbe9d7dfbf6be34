"""Readings take the share of the training time that they may, measured with a clock of the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import hesscope as hs
from hesscope.monitor.budget import Budget, parse_share
from monitor.runs import Ticks, monitor_of, network


def _simulated(share: float, step: float, cost: Any, steps: int) -> Budget:
    clock = Ticks()
    budget = Budget(share, clock)
    draw = np.random.default_rng(0)
    budget.begin()
    budget.leave()
    for _ in range(steps):
        clock.now += step * draw.uniform(0.5, 1.5)
        budget.begin()
        if budget.allows("quick"):
            took = cost(draw)
            clock.now += took
            budget.learn("quick", took)
        budget.leave()
    return budget


@pytest.mark.parametrize("share", [0.005, 0.02, 0.1])
@pytest.mark.parametrize(
    "cost", [lambda d: 0.4, lambda d: d.uniform(0.1, 1.2), lambda d: 0.2 if d.random() < 0.8 else 2.0], ids=range(3)
)
def test_the_budget_is_kept_within_a_tenth_of_itself(share: float, cost: Any) -> None:
    budget = _simulated(share, 0.5, cost, 8_000)
    assert budget.used == pytest.approx(share, rel=0.1)
    assert budget.skipped > 0


def test_the_second_reading_does_not_wait_for_another_start() -> None:
    """A start of 4 seconds at 10 %: the first warm reading is forecast at 2, and comes after 60 of training, not 80."""
    clock = Ticks()
    budget = Budget(0.1, clock)
    budget.begin()
    clock.now += 4.0
    budget.learn("cold", 4.0)
    budget.leave()
    for _ in range(200):
        clock.now += 1.0
        budget.begin()
        taken = budget.allows("quick")
        budget.leave()
        if taken:
            break
    assert budget.trained == pytest.approx(60.0)


def test_readings_that_cost_less_are_all_taken() -> None:
    budget = _simulated(0.5, 1.0, lambda d: 0.01, 200)
    assert budget.readings == 200
    assert budget.skipped == 0


class _Slow(nn.Module):
    """A network of which every evaluation takes a second of the test's clock."""

    def __init__(self, clock: Ticks) -> None:
        super().__init__()
        self.inner, self.clock = network(), [clock]

    def forward(self, x: Tensor) -> Tensor:
        self.clock[0].now += 1.0
        return self.inner(x)


def test_monitor_spends_its_share(tmp_path: Path) -> None:
    """Readings, the making of the problem and its proofs, all of it."""
    clock = Ticks()
    problem = _Slow(clock)
    copied = {"__deepcopy__": lambda self, memo: self}
    clock.__class__ = type("Shared", (Ticks,), copied)  # the private copy looks at the same clock
    with monitor_of(problem, tmp_path, budget="10%", clock=clock) as monitor:
        for step in range(60):
            clock.now += 15.0
            monitor.step(step)
        run = monitor.run
    assert 5 < len(run.readings) < 55
    assert run.column("share")[-1] == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize(
    ("given", "share"), [("2%", 0.02), ("0.5 %", 0.005), (0.02, 0.02), ("100%", 1.0), (None, None)]
)
def test_budgets_as_people_write_them(given: Any, share: float | None) -> None:
    assert parse_share(given) == share


def test_readings_come_at_most_once_in_so_many_steps(tmp_path: Path) -> None:
    with monitor_of(network(), tmp_path, every=10) as monitor:
        steps = [s for s in (0, 3, 7, 12, 19, 25, 40, 41) if monitor.step(s) is not None]
    assert steps == [0, 12, 25, 40]
    assert isinstance(monitor.last, hs.Reading)
