"""An analysis within its time: planned by value per price, told first, cut off by the clock, kept by those that go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hesscope as hs
from hesscope import deadline
from hesscope.analysis.checkpoints import evenly_spread
from hesscope.analysis.planning import VALUES, make_plan
from hesscope.analysis.prices import Prices, parse_budget
from hesscope.operators import Dense
from hesscope.report import summary_lines
from hesscope.results.plan import (
    FINE,
    KRONECKER,
    LAYERS,
    NEURONS,
    PARTS,
    SPECTRUM,
    TRAINING,
    TRAINING_BLOCKS,
    AnalysisPlan,
)

SMALL = hs.AnalyzeConfig(k=3, smallest=1, probes=6, steps=20)
LEAN = replace(SMALL, probes=3, check=False, decouple=0, landscape=False)
CORE = ["self-check", "largest eigenvalues", "smallest eigenvalues", "trace", "spectrum"]


def _problem(seed: int = 0) -> hs.Problem:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 14), nn.Tanh(), nn.Linear(14, 3))  # 227 parameters: more than an exact solve
    return hs.Problem.of(model, "cross_entropy", (torch.randn(30, 12), torch.arange(30) % 3))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still unless a test moves it."""
    time = [1000.0]
    monkeypatch.setattr(deadline, "now", lambda: time[0])
    return time


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("5m", 300.0), ("90s", 90.0), ("90", 90.0), (2.5, 2.5), ("1.5h", 5400.0), (" 2 min ", 120.0), ("none", None)],
)
def test_budgets_as_people_write_them(given: Any, seconds: float | None) -> None:
    assert parse_budget(given) == seconds
    assert parse_budget(None) is None


def _kept(plan: AnalysisPlan) -> list[str]:
    return [stage.name for stage in plan.stages if stage.kept]


def test_with_time_for_it_everything_runs_as_asked() -> None:
    plan = make_plan(_problem(), SMALL, Prices(1.0, 1.0, 1.0), 4, 1e6)
    assert set(_kept(plan)) == {*CORE, *VALUES} - {FINE}  # blocks by neuron are affordable of H itself
    assert plan.omissions() == []
    assert all(stage.amount == stage.whole for stage in plan.stages)
    free = make_plan(_problem(), SMALL, None, 4, None)
    assert _kept(free) == _kept(plan)
    assert [stage.products for stage in free.stages if stage.name != "smallest eigenvalues"] == [None] * 14


def test_without_time_only_the_core_is_left_and_the_rest_is_named_with_its_price() -> None:
    plan = make_plan(_problem(), SMALL, Prices(1.0, 1.0, 1.0), 4, 10.0)
    assert _kept(plan) == CORE
    said = " ".join(plan.lines())
    for stage in plan.left_out:
        assert f"{stage.name} (" in said
    assert "longer than the budget" in said
    assert plan.stage(SPECTRUM).amount == 2
    assert "spectrum, 2 of 6 random vectors" in said


def test_what_gives_most_for_its_price_comes_first() -> None:
    """With more and more time, stages come in; prices never exceed it."""
    problem, prices, before = _problem(), Prices(1.0, 1.0, 1.0), set(CORE)
    order = []
    for budget in np.geomspace(200, 4000, 20):
        plan = make_plan(problem, SMALL, prices, 4, float(budget))
        assert plan.seconds <= 0.9 * budget or _kept(plan) == CORE
        order += [name for name in _kept(plan) if name not in before]
        before |= set(_kept(plan))
    assert before == {*CORE, *VALUES} - {FINE}
    assert order.index(LAYERS) < order.index(TRAINING)
    assert order.index(PARTS) < order.index(TRAINING) < order.index(TRAINING_BLOCKS)


def test_a_dear_stage_shrinks_before_it_goes() -> None:
    plans = [make_plan(_problem(), SMALL, Prices(0.1, 1.0, 0.1), 8, float(b)) for b in np.geomspace(300, 3000, 16)]
    amounts = [stage.amount for plan in plans if (stage := plan.stage(TRAINING)) is not None and stage.kept]
    assert amounts == sorted(amounts)  # type: ignore[type-var]
    assert set(amounts) == {2, 4, 8}
    assert evenly_spread(["0", "1", "2", "5", "9"], 3) == ["0", "2", "9"]
    assert evenly_spread(["0", "1"], 2) == ["0", "1"]


def test_the_core_leaves_time_for_a_block_map_and_is_cut_down_for_it() -> None:
    """Convolutions have no closed form: norms of their blocks take random vectors where a column each takes hours."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3))
    problem = hs.Problem.of(model, "cross_entropy", (torch.randn(20, 3, 8, 8), torch.arange(20) % 3))
    for price in (0.5, 1.0, 1.5):
        plan = make_plan(problem, hs.AnalyzeConfig(), Prices(0.3 * price, price, 0.8 * price), 5, 300.0)
        assert plan.seconds <= 0.9 * 300
        assert plan.stage(LAYERS).kept
        assert plan.stage(FINE).kept
        assert not plan.stage(NEURONS).kept  # a product a parameter of the convolution
        assert 3 <= plan.stage("largest eigenvalues").amount <= 20
    said = " ".join(plan.lines())
    assert "blocks by layer, 8 random vectors a block" in said
    assert "of 60 products" in said
    assert make_plan(problem, hs.AnalyzeConfig(), None, 5, None).stage(FINE) is None


def test_a_core_that_is_cut_down_says_so_and_keeps_to_its_products(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hesscope.analysis.run.measure_prices", lambda *_: Prices(1.0, 1.0, 1.0))
    config = hs.AnalyzeConfig(k=12, probes=4, steps=8, check=False, decouple=0, landscape=False)
    found = hs.analyze(_problem(), config, budget=200.0)
    assert found.plan is not None
    planned = {stage.name: stage for stage in found.plan.stages}
    assert len(found.largest.values) == planned["largest eigenvalues"].amount == 6  # of 9 + 0.4 (36 - 9) products
    assert found.largest.products <= planned["largest eigenvalues"].products
    assert found.smallest.products <= planned["smallest eigenvalues"].products < 70
    assert found.block_norms("layer") is not None
    said = "\n".join(found.notes)
    assert "largest eigenvalues, 6 of 12" in said
    true = np.linalg.eigvalsh(hs.Hessian(_problem()).dense().double().numpy())
    for value, residual in zip(found.largest.values, found.largest.residuals, strict=True):
        assert np.abs(true - value).min() <= residual + 1e-5  # fewer products: larger residuals, and as true


def test_two_machines_with_one_plan_find_the_same(clock: list[float]) -> None:
    """Prices decide the plan and nothing else: what stages compute is in the plan."""
    problem = _problem()
    one, two = (hs.analyze(problem, LEAN, budget=budget) for budget in (1e6, None))
    assert one.plan is not None
    assert one.plan.budget == 1e6
    assert two.plan is not None
    assert two.plan.budget is None
    # Not to the bit: which engine multiplies is measured.
    np.testing.assert_allclose(one.largest.values, two.largest.values, rtol=1e-5)
    assert one.largest.products == two.largest.products
    assert one.density.products == two.density.products
    assert float(one.trace) == pytest.approx(float(two.trace), rel=1e-5)
    assert one.block_norms("layer") is not None


def test_a_stage_that_overruns_is_cut_off_and_named(clock: list[float]) -> None:
    def watch(stage: str, expected: int) -> Callable[[int, float], None]:
        clock[0] += 1e6 if stage.startswith("comparing 0") else 0.0
        return lambda count, seconds: None

    told: list[AnalysisPlan] = []
    config = replace(SMALL, check=False, block_maps=False)
    found = hs.analyze(_problem(), config, budget="5m", watch=watch, on_plan=told.append)
    assert len(told) == 1
    assert told[0].cut == ()
    assert found.plan is not None
    assert [stage.name for stage in found.plan.cut] == [KRONECKER]
    assert found.kronecker == ()
    assert any(note.startswith("Cut off: Kronecker factors after") for note in found.notes)
    assert "cut off for the budget of 5 min" in summary_lines(found)[6]
    assert found.landscape is not None  # those after it still run


def test_what_was_left_out_is_said_in_the_lines(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hesscope.analysis.run.measure_prices", lambda *_: Prices(1.0, 1.0, 1.0))
    found = hs.analyze(_problem(), replace(SMALL, check=False), budget=1.0)
    assert found.blocks == ()
    assert found.landscape is None
    assert found.density.probe_nodes == () or len(found.density.probe_nodes) <= 2
    lines = summary_lines(found)
    assert "left out for the budget of 1 s" in lines[4]
    assert "left out for the budget of 1 s" in lines[5]
    assert any(note.startswith("Left out for the budget") for note in found.notes)


def test_a_run_that_goes_on_keeps_its_plan(tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    problem, slow = _problem(), [1.0]
    monkeypatch.setattr("hesscope.analysis.run.measure_prices", lambda *_: Prices(slow[0], slow[0], slow[0]))

    def stop(stage: str, expected: int) -> Callable[[int, float], None]:
        if stage == "smallest eigenvalues":
            raise KeyboardInterrupt
        return lambda count, seconds: None

    first: list[AnalysisPlan] = []
    with pytest.raises(KeyboardInterrupt):
        hs.analyze(problem, LEAN, budget=500.0, resume=tmp_path / "state", watch=stop, on_plan=first.append)
    slow[0] = 100.0  # the machine is busy now
    again = hs.analyze(problem, LEAN, budget=500.0, resume=tmp_path / "state")
    assert again.plan is not None
    assert [replace(stage, took=None, cut=False) for stage in again.plan.stages] == list(first[0].stages)


def test_a_changed_flag_keeps_the_stages_it_does_not_touch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, folder = _problem(), tmp_path / "state"
    first = hs.analyze(problem, LEAN, budget=None, resume=folder)
    assert not [path for path in folder.iterdir() if path.name.endswith("-state")]
    ran: list[str] = []

    def watch(stage: str, expected: int) -> Callable[[int, float], None]:
        ran.append(stage)
        return lambda count, seconds: None

    second = hs.analyze(problem, replace(LEAN, probes=2), budget=None, resume=folder, watch=watch)
    assert "spectrum" in ran
    assert not {"largest eigenvalues", "smallest eigenvalues", "trace", "blocks by layer"} & set(ran)
    np.testing.assert_array_equal(first.largest.values, second.largest.values)
    ran.clear()
    third = hs.analyze(problem, replace(LEAN, probes=2, k=5), budget="1h", resume=folder, watch=watch)
    assert "largest eigenvalues" in ran
    assert "spectrum" not in ran
    assert third.largest.values.size == 5
    ran.clear()
    other = hs.analyze(_problem(1), LEAN, budget=None, resume=folder, watch=watch)  # another network: afresh
    assert "largest eigenvalues" in ran
    assert other.loss != first.loss


def test_deadlines_stop_products_and_leave_no_trace(clock: list[float]) -> None:
    matrix = Dense(torch.eye(3))
    with deadline.work_until(clock[0] + 1), deadline.work_until(clock[0] + 100):  # the nearer end counts
        matrix.apply(torch.ones(3, 1))
        clock[0] += 2
        with pytest.raises(deadline.OutOfTime):
            matrix.apply(torch.ones(3, 1))
    matrix.apply(torch.ones(3, 1))
    assert not issubclass(deadline.OutOfTime, Exception)
