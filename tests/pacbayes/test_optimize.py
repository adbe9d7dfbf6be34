"""Certificates of small networks: valid, reproducible, resumable; bad input is refused."""

from __future__ import annotations

import math
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hesscope as hs
from hesscope.errors import InputError
from hesscope.experiments.wu2022.bound_parts import PARTS
from hesscope.pacbayes import Certificate, optimize
from hesscope.pacbayes.settings import METHODS
from hesscope.rng import Rng
from offspring import Child
from pacbayes.pac_cases import blobs, convolutional, trained
from properties import examples

Case = tuple[hs.Problem, dict[str, torch.Tensor]]
SMALL: dict[str, Any] = {"epochs": 3, "batch_size": 100, "refresh": 1, "draws": 2000}


@pytest.fixture(scope="module")
def case() -> Case:
    return trained()


LESS_ONE_PART = [replace(METHODS["local"], **without) for _, without in PARTS.values()]


@pytest.mark.parametrize("method", [*METHODS, *LESS_ONE_PART])
def test_certified_terms_follow_from_the_posterior(case: Case, method: Any) -> None:
    """KL by torch.distributions in the dense standard basis, at the λ of the grid that the bound names."""
    problem, before = case
    found = optimize(problem, before, method, **SMALL)
    total = 0.0
    groups = found.bound.variances if len(found.bound.variances) > 1 else found.bound.variances * len(found.mean)
    for (name, mean), scale in zip(found.mean.items(), groups, strict=True):
        variance = torch.as_tensor(found.variance[name]).double().flatten()
        u, v = (torch.as_tensor(part[name]).double() if name in part else None for part in (found.rows, found.columns))
        turn = torch.eye(len(variance), dtype=torch.float64)
        if u is not None:
            turn = u if v is None else torch.kron(u, v)
        covariance = turn @ torch.diag(variance) @ turn.T
        dense = torch.distributions.MultivariateNormal(torch.as_tensor(mean).double().flatten(), covariance)
        spread = torch.full((len(variance),), math.sqrt(scale), dtype=torch.float64)
        prior = torch.distributions.MultivariateNormal(before[name].double().flatten(), scale_tril=torch.diag(spread))
        total += float(torch.distributions.kl_divergence(dense, prior))
    assert found.bound.kl == pytest.approx(total, rel=1e-5)
    for index, scale in zip(found.bound.indices, found.bound.variances, strict=True):
        assert index >= 1
        assert scale == pytest.approx(0.1 * math.exp(-index / 100))
    assert found.bound.draws >= 2000
    assert found.gradients == 3 * 6
    assert found.bound.failure == pytest.approx(0.035)


@examples(6)
@given(st.integers(0, 10**6), st.sampled_from(["base", "iter", "local"]))
def test_bounds_exceed_the_test_error_of_the_stochastic_network(seed: int, method: str) -> None:
    problem, before = trained(seed=seed, count=300, steps=60)
    found = optimize(problem, before, method, test=blobs(4000, 3, 6, seed + 1), **SMALL, seed=seed)
    assert found.bound.error <= found.bound.error_bar < found.bound.value
    assert found.test_error <= found.bound.value


def test_our_method_is_tighter_than_the_papers_at_the_same_number_of_gradients() -> None:
    problem, before = trained(count=3000, steps=30)
    values = {m: optimize(problem, before, m, **(SMALL | {"epochs": 6})).bound.value for m in ("base", "iter", "local")}
    assert values["local"] < 0.9 * min(values["iter"], values["base"])


def test_every_part_of_our_method_does_something() -> None:
    """Each left out gives another bound, all parts together that of the whole; scales of tensors take 10,000 examples."""
    problem, before = trained(count=300, steps=30)
    values = [optimize(problem, before, method, **SMALL).bound.value for method in ["local", *LESS_ONE_PART]]
    assert len(set(values)) == len(LESS_ONE_PART)
    assert values[-1] == values[0]


def test_variances_are_small_where_the_curvature_is_large(case: Case) -> None:
    problem, before = case
    found = optimize(problem, before, "local", **SMALL)
    h, s = found.eigenvalues["fc1.weight"].flatten(), found.variance["fc1.weight"].flatten()
    order = np.argsort(h)
    assert np.median(s[order[-8:]]) < 0.7 * np.median(s[order[:8]])


def test_draws_of_the_certificate_have_the_certified_error(case: Case) -> None:
    """Whole networks loaded with drawn weights err as often as the certificate says, within 4 standard errors."""
    problem, before = case
    found = optimize(problem, before, "local", **(SMALL | {"draws": 20_000}))
    (x, y) = next(iter(problem.batches))
    errors = []
    for number in range(300):
        drawn = problem.at(found.draw(Rng(7).child(number)))
        errors.append(float((drawn.evaluate((x, y), drawn.parameters).f.argmax(-1) != y).double().mean()))
    stderr = np.std(errors) / 300**0.5 + math.sqrt(found.bound.error / 20_000)
    assert abs(np.mean(errors) - found.bound.error) <= 4 * stderr


def test_the_prior_does_not_see_the_trained_weights(case: Case) -> None:
    """Other trained weights, same initialisation: the divergence is measured from the same centre."""
    problem, before = case
    shifted = problem.at({name: weight + 0.3 for name, weight in problem.parameters.items()})
    here, there = (optimize(p, before, "base", **(SMALL | {"epochs": 1, "rate": 1e-12})) for p in (problem, shifted))
    distance = sum(((there.mean[n] - before[n].numpy()) ** 2).sum() for n in there.mean)
    nearer = sum(((here.mean[n] - before[n].numpy()) ** 2).sum() for n in here.mean)
    assert distance != pytest.approx(nearer, rel=1e-3)
    assert there.bound.kl > 0.5 * distance / there.bound.variances[0]
    assert here.bound.kl > 0.5 * nearer / here.bound.variances[0]


def test_layers_without_a_draw_per_example_are_certified_by_batches() -> None:
    problem, before = convolutional()
    found = optimize(problem, before, "iter", epochs=2, batch_size=50, batch_draws=200)
    assert found.bound.draws == 200
    assert set(found.rows) == {"0.weight", "0.bias", "4.weight"}
    with pytest.raises(InputError, match="method='iter'"):
        optimize(problem, before, "local", epochs=1)


def test_priors_from_a_part_of_the_data_are_bounded_on_the_rest() -> None:
    problem, before = trained(count=600)
    first, rest = hs.pacbayes.split(problem, 300)
    model = problem.model
    centre = {name: (0.1 * before[name] + 0.9 * weight) for name, weight in first.parameters.items()}
    found = optimize(rest, centre, "local", **SMALL)
    assert found.bound.examples == 300
    assert model is rest.model
    whole = optimize(problem, before, "local", **SMALL)
    assert found.bound.value < whole.bound.value
    (_, y) = next(iter(rest.batches))
    assert torch.equal(y, next(iter(problem.batches))[1][300:])
    with pytest.raises(InputError, match="both sides"):
        hs.pacbayes.split(problem, 600)


def test_saved_certificates_come_back(case: Case, tmp_path: Path) -> None:
    problem, before = case
    np.savez(tmp_path / "init.npz", **{name: value.numpy() for name, value in before.items()})
    torch.save(before, tmp_path / "init.pt")
    found = optimize(problem, tmp_path / "init.npz", "appr", **SMALL)
    found.save(tmp_path / "certificate")
    again = Certificate.load(tmp_path / "certificate")
    assert again.bound == found.bound
    np.testing.assert_array_equal(again.variance["fc1.weight"], found.variance["fc1.weight"])
    assert optimize(problem, tmp_path / "init.pt", "appr", **SMALL).bound == found.bound


def test_bad_input_is_refused(case: Case, tmp_path: Path) -> None:
    problem, before = case
    (tmp_path / "broken.npz").write_bytes(b"not an archive")
    (tmp_path / "broken.pt").write_bytes(b"not a state_dict")
    refusals = [
        (lambda: optimize(problem, None), "needs the weights at initialisation"),
        (lambda: optimize(problem, problem.parameters), "must not depend on the training data"),
        (lambda: optimize(problem, {**before, "fc1.weight": torch.zeros(2)}), "must have shape"),
        (lambda: optimize(problem, {"fc1.weight": before["fc1.weight"]}), "every parameter"),
        (lambda: optimize(problem, {**before, "fc1.bias": before["fc1.bias"] * torch.nan}), "finite"),
        (lambda: optimize(problem, tmp_path / "none.npz"), "must exist"),
        (lambda: optimize(problem, tmp_path / "broken.npz"), "initial weights must be"),
        (lambda: optimize(problem, tmp_path / "broken.pt"), "initial weights must be"),
        (lambda: optimize(problem, before, "iterr"), "There are: base"),
        (lambda: optimize(problem, before, delta=1.0), "delta must lie strictly"),
        (lambda: optimize(problem, before, delta_mc=0.0), "delta_mc must lie strictly"),
        (lambda: optimize(problem, before, epochs=0), "at least 1"),
        (lambda: optimize(problem, before, speed=3), "There are: epochs"),
    ]
    for call, message in refusals:
        with pytest.raises(InputError, match=message):
            call()
    regression = hs.Problem.of(torch.nn.Linear(3, 1), "mse", (torch.randn(9, 3), torch.randn(9, 1)))
    with pytest.raises(InputError, match="one unweighted label"):
        optimize(regression, {name: weight + 1 for name, weight in regression.parameters.items()})


def resumed(folder: str) -> tuple[Any, int, float]:
    problem, before = trained()
    found = optimize(problem, before, "local", epochs=6, batch_size=25, refresh=2, draws=2000, resume=folder)
    return found.bound, found.gradients, float(found.mean["fc1.weight"].sum())


def test_a_killed_run_goes_on_and_ends_with_the_same_numbers(tmp_path: Path) -> None:
    killed = Child(resumed, str(tmp_path / "b"), folder=tmp_path)
    while not list((tmp_path / "b").glob("state-0000003-*.npz")):
        assert killed.code is None, "it ended before it could be killed"
        time.sleep(0.002)
    killed.send(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert (tmp_path / "b").exists()
    assert resumed(str(tmp_path / "b")) == resumed(str(tmp_path / "a"))


def test_a_folder_of_another_run_is_refused(case: Case, tmp_path: Path) -> None:
    problem, before = case
    optimize(problem, before, "base", **SMALL, resume=tmp_path)
    with pytest.raises(InputError, match="same settings"):
        optimize(problem, before, "base", **(SMALL | {"epochs": 4}), resume=tmp_path)
    with pytest.raises(InputError, match="same init"):
        optimize(problem, {k: v + 1 for k, v in before.items()}, "base", **SMALL, resume=tmp_path)
    with pytest.raises(InputError, match="same init"):
        optimize(problem, {k: -v for k, v in before.items()}, "base", **SMALL, resume=tmp_path)
