"""Networks of this paper: whether they are trained, on which data, and that a killed training goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hesscope.errors import InputError
from hesscope.experiments import find, run_seeds
from hesscope.experiments.declared import at_most
from hesscope.experiments.long_runs import Listener, keeping
from hesscope.experiments.recipe import Experiment, Findings
from hesscope.experiments.wu2022 import _bounds, _trained, bound_budgets, bound_parts, fig11, fig31, table10
from hesscope.experiments.wu2022._trained import Setting, trained
from hesscope.pacbayes import Settings, optimize
from hesscope.zoo import stand_ins
from hesscope.zoo.data import load

SMALL = Setting(data="cifar10", examples=24, width=4, depth=1, epochs=2)


def _real(folder: Path) -> Path:
    """A tiny file in the place of CIFAR-10."""
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(0)
    arrays = {
        f"{kind}_{split}": values
        for split in ("train", "test")
        for kind, values in (
            ("x", draw.integers(0, 256, (24, 3, 32, 32), dtype=np.uint8)),
            ("y", draw.integers(0, 10, 24)),
        )
    }
    np.savez(folder / "cifar10_10k_2k.npz", **arrays)
    return folder


def _weights(setting: Setting, count: int) -> list[torch.Tensor]:
    return [weight.detach().clone() for model in trained(setting, count).models for weight in model.parameters()]


@pytest.mark.parametrize("count", [1, 2], ids=["one by one", "together"])
def test_weights_trained_on_a_stand_in_are_not_taken_for_those_of_the_real_data(count: int, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    setting = replace(SMALL, data_dir=str(data))
    with stand_ins(True), keeping(tmp_path / "state"):
        replaced = _weights(setting, count)
    _real(data)
    with keeping(tmp_path / "state"):
        found = _weights(setting, count)
    expected = _weights(setting, count)
    for one, other, wrong in zip(found, expected, replaced, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert not torch.equal(one, wrong)


@dataclass(frozen=True)
class Loading:
    data_dir: str | None = None
    seed: int = 0


def _sum_of_pixels(killed_at: int | None = None, replaced: tuple[int, ...] = (0, 1, 2)) -> Experiment:
    """Loads CIFAR-10 at the seeds named, and measures it."""

    def run(config: Loading) -> Findings:
        if config.seed == killed_at:
            raise KeyboardInterrupt
        if config.seed not in replaced:
            return {"sum": 0.0}, {}
        return {"sum": float(load("cifar10", folder=config.data_dir, count=24).x.sum())}, {}

    claims = (at_most("small", "somewhere", "a number is small", 1.0, "its words"),)
    return Experiment("test.pixels", "Pixels", "nowhere", Loading(), Loading(), Loading(), run, claims)


def test_a_run_begun_with_replaced_data_does_not_go_on_with_real_ones(tmp_path: Path) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    data.mkdir()
    config = Loading(data_dir=str(data))
    with pytest.raises(KeyboardInterrupt):
        run_seeds(_sum_of_pixels(killed_at=1), config, 2, True, state)
    _real(data)
    found = run_seeds(_sum_of_pixels(), config, 2, True, state)
    assert [outcome.stand_ins for outcome in found] == [(), ()]
    assert found[0].data["sum"] == found[1].data["sum"]


def test_what_was_replaced_at_one_seed_is_said_of_all(tmp_path: Path) -> None:
    found = run_seeds(_sum_of_pixels(replaced=(1,)), Loading(data_dir=str(tmp_path)), 3, True)
    assert [outcome.stand_ins for outcome in found] == [("the cifar10 data",)] * 3


def test_networks_that_are_not_trained_decide_nothing() -> None:
    """Without an epoch the loss is that of a constant: LeNet5's correspondences are then no finding about minima."""
    outcome = fig11.EXPERIMENT.outcome(replace(fig11.EXPERIMENT.quick, epochs=0, examples=60))
    assert {claim.holds for claim in outcome.claims} == {None}
    said = [claim.got for claim in outcome.claims if claim.got != "not measured at this size"]
    assert said
    assert all(text.startswith("networks are not trained (loss 2.3") for text in said)
    (figure, *_) = fig11.figures(outcome).values()
    assert "loss 2.3, accuracy 0." in figure.get_supxlabel()


@pytest.mark.parametrize(
    ("name", "changes", "decided"),
    [
        ("wu2022.fig3", {"epochs": 0, "random_epochs": 0, "examples": 60}, {"initialisation", "random labels"}),
        ("wu2022.fig29", {"epochs": 0}, {"initial", "centres", "factor"}),
    ],
)
def test_claims_about_initialisation_and_random_labels_need_no_training(
    name: str, changes: dict[str, Any], decided: set[str]
) -> None:
    experiment = find(name)
    outcome = experiment.outcome(replace(experiment.quick, **changes))
    for claim in outcome.claims:
        free = any(claim.id.startswith(start) for start in decided)
        assert (claim.holds is not None) == free, claim.id
        assert free or claim.got.startswith("networks are not trained")


def test_the_default_networks_of_the_paper_are_trained_as_their_settings_say() -> None:
    """Deep networks and LeNet5 do not leave the loss of a constant at the paper's rate in minutes."""
    for name in ("fig7", "fig11", "fig16", "fig19", "fig21"):
        assert find(f"wu2022.{name}").default.momentum == 0.9, name


@pytest.mark.parametrize("network", ["dense", "lenet5"])
def test_a_training_looked_at_on_its_way_goes_on_where_it_was_killed(network: str, tmp_path: Path) -> None:
    setting = Setting(network=network, width=4, examples=40, epochs=6)
    expected = [_flat(models) for models in _trained.trained_along(setting, (0, 2, 6))]
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), keeping(tmp_path, _stopping_at(4, told)):
        _trained.trained_along(setting, (0, 2, 6))
    with keeping(tmp_path, told.append):
        found = [_flat(models) for models in _trained.trained_along(setting, (0, 2, 6))]
    assert len(told) == 4 + 3, "three epochs were kept"
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert not torch.equal(found[0], found[1])
    torch.testing.assert_close(found[-1], _flat(trained(setting)), rtol=0, atol=0)


def _stopping_at(count: int, told: list[str]) -> Listener:
    """Writes down what it is told, and stops the run at that many."""

    def listen(text: str) -> None:
        told.append(text)
        if len(told) == count:
            raise KeyboardInterrupt

    return listen


def _flat(models: _trained.TrainedModels) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in models.models[0].parameters()])


def test_long_epochs_are_kept_every_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 500 epochs every tenth is kept; where one takes a minute, each."""
    monkeypatch.setattr("hesscope.experiments.long_runs.SECONDS", 0.0)
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), keeping(tmp_path, _stopping_at(3, told)):
        trained(Setting(width=4, examples=40, epochs=500))
    assert told[-1].endswith("epoch 3 of 500")


BOUND = table10.Config(
    data="digits",
    rows=("T-50",),
    methods=("base", "local"),
    sgd_epochs=3,
    epochs=2,
    our_epochs=2,
    batch_size=100,
    draws=500,
)


@pytest.mark.parametrize("stop", [2, 4, 5], ids=["in SGD", "at the first method", "at the second"])
def test_a_table_of_bounds_that_was_killed_goes_on(stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without naming a folder: where the run keeps its state, so does the table."""
    told: list[str] = []
    expected = table10.EXPERIMENT.outcome(BOUND).data["T-50"]["bound"]
    with pytest.raises(KeyboardInterrupt), keeping(tmp_path, _stopping_at(stop, told)):
        table10.EXPERIMENT.outcome(BOUND)
    optimised: list[str] = []

    def counted(problem: Any, before: Any, method: Any, *rest: Any, **more: Any) -> Any:
        optimised.append(method)
        return optimize(problem, before, method, *rest, **more)

    monkeypatch.setattr(_bounds, "optimize", counted)
    with keeping(tmp_path, told.append):
        found = table10.EXPERIMENT.outcome(BOUND).data["T-50"]["bound"]
    assert optimised == (["local", "local"] if stop == 5 else ["base", "local", "local"])
    assert (
        sum(text.startswith("SGD") for text in told[stop:]) == (2 if stop == 2 else 0) + 6
    )  # twice for the prior of half the data
    np.testing.assert_array_equal(found, expected)


def test_a_bound_on_a_stand_in_is_not_taken_for_one_on_the_real_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    training = _bounds.Training(data="cifar10", examples=24, sgd_epochs=1, sgd_batch=8, data_dir=str(data))
    row, settings = _bounds.Row("small", 3), Settings(epochs=1, batch_size=8, draws=50, batch_draws=10)

    def measured() -> dict[str, Any]:
        found = _bounds.summary(_bounds.prepare(row, training), "base", settings)
        return {name: value for name, value in found.items() if name != "seconds"}

    with stand_ins(True), keeping(tmp_path / "state"):
        replaced = measured()
    _real(data)
    with keeping(tmp_path / "state"):
        found = measured()
    np.testing.assert_equal(found, measured())
    assert found["kl"] != replaced["kl"]


@pytest.mark.parametrize("module", [table10, fig31, bound_parts, bound_budgets])
def test_bounds_at_the_papers_size_have_its_numbers(module: Any) -> None:
    """SGD at 0.01 in batches of 128 for 1000 epochs without momentum (E.3, H); η = 10; 50,000 draws."""
    size = module.EXPERIMENT.paper
    found = (size.sgd_rate, size.sgd_batch, size.sgd_epochs, size.momentum, size.refresh, size.draws)
    assert found == (0.01, 128, 1000, 0.0, 10, 50_000)
    assert _bounds.settings_of(size, 7).refresh == 10


def test_every_paper_size_says_how_weights_start() -> None:
    for name in ("fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig11", "fig16", "fig19", "fig21", "fig23", "fig29"):
        assert _trained.START in find(f"wu2022.{name}").chosen, name
    for name in ("table6", "table8", "table9"):
        assert _trained.START in find(f"wu2022.{name}").chosen, name


def test_real_data_that_are_missing_are_still_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be at hand"):
        trained(replace(SMALL, data_dir=str(tmp_path)))
