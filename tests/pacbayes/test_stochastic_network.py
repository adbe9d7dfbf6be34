"""Draws per example have the law of draws of the weights; the expected error is the frequency of errors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import hesscope as hs
from hesscope.errors import InputError
from hesscope.pacbayes.bounds import Grid
from hesscope.pacbayes.posterior.bases import Basis, kronecker_bases, kronecker_layers, predicted_bases, standard_bases
from hesscope.pacbayes.posterior.certificate import gibbs_error
from hesscope.pacbayes.posterior.curvature_start import scales_from_curvature
from hesscope.pacbayes.posterior.gaussian import Posterior
from hesscope.pacbayes.posterior.objective import expected_error
from hesscope.pacbayes.posterior.sample import Sample
from hesscope.pacbayes.posterior.stochastic import StochasticNetwork
from hesscope.pacbayes.settings import Settings
from hesscope.rng import Rng
from pacbayes.pac_cases import convolutional, trained


def network_of(
    problem: hs.Problem, before: dict[str, torch.Tensor], bases: Callable[..., Any] | None = None
) -> tuple[StochasticNetwork, Sample]:
    posterior = Posterior(problem.parameters, before, standard_bases(problem), False)
    sample = Sample(problem)
    network = StochasticNetwork(problem, posterior, sample.take(slice(0, 8)))
    if bases is not None:
        posterior.change_bases(bases(problem))
    draw = Rng(5).torch()
    for name, mean in posterior.mean.items():
        posterior.log_scale[name] = torch.randn(mean.shape, generator=draw) * 0.5 - 1.5
    return network, sample


@pytest.mark.parametrize("bases", [None, kronecker_bases, predicted_bases])
def test_means_are_the_trained_network_in_every_basis(bases: Callable[..., Any] | None) -> None:
    problem, before = trained(depth=2)
    network, sample = network_of(problem, before, bases)
    batch = sample.take(slice(0, 50))
    logits, labels = network.logits(batch, "none")
    assert torch.allclose(logits, problem.evaluate(batch, problem.parameters).f, atol=1e-4)
    assert torch.equal(labels, batch[1])


def test_a_draw_per_example_has_the_law_of_a_draw_of_the_weights() -> None:
    """Means and covariances of a two-layer network's outputs agree between 40,000 draws of each kind."""
    problem, before = trained(width=5, dim=4)
    network, sample = network_of(problem, before, kronecker_bases)
    assert network.local
    count, generator = 40_000, Rng(1).torch()
    repeated = sample.take(torch.zeros(count, dtype=torch.long))
    with torch.no_grad():
        local = network.logits(repeated, "example", generator)[0].double()
        posterior = network.posterior
        x = repeated[0][0]
        weights = {}
        for name, mean in posterior.mean.items():
            noise = torch.randn(count, *mean.shape, generator=generator) * posterior.log_scale[name].exp()
            basis = posterior.bases[name]
            turned = torch.einsum("ij,cj...->ci...", basis.rows, mean + noise)
            weights[name] = turned if basis.columns is None else turned @ basis.columns.T
        hidden = (weights["fc1.weight"] @ x + weights["fc1.bias"]).relu()
        dense = (torch.einsum("cij,cj->ci", weights["fc2.weight"], hidden) + weights["fc2.bias"]).double()
    for power in (1, 2):
        a, b = local**power, dense**power
        stderr = ((a.var(0) + b.var(0)) / count).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() <= 4 * stderr).all()
    products_a, products_b = local[:, 0] * local[:, 1], dense[:, 0] * dense[:, 1]
    stderr = ((products_a.var() + products_b.var()) / count).sqrt()
    assert (products_a.mean() - products_b.mean()).abs() <= 4 * stderr
    assert (local[:, 0] * local[:, 1]).mean() - local[:, 0].mean() * local[:, 1].mean() != 0


def test_one_draw_per_batch_is_shared_by_its_examples() -> None:
    problem, before = trained()
    network, sample = network_of(problem, before, kronecker_bases)
    twice = sample.take(torch.tensor([3, 3]))
    with torch.no_grad():
        shared = network.logits(twice, "batch", Rng(0).torch())[0]
        own = network.logits(twice, "example", Rng(0).torch())[0]
    assert torch.allclose(shared[0], shared[1], rtol=1e-5)
    assert not torch.allclose(own[0], own[1])


@pytest.mark.parametrize("classes", [2, 4])
def test_expected_error_is_the_frequency_of_errors(classes: int) -> None:
    draw = Rng(classes).torch()
    mean = torch.randn(6, classes, generator=draw, dtype=torch.float64)
    variance = torch.rand(6, classes, generator=draw, dtype=torch.float64) + 0.1
    turn = torch.linalg.qr(torch.randn(classes, classes, generator=draw, dtype=torch.float64))[0]
    labels = torch.arange(6) % classes
    count = 20_000
    a = mean + variance.sqrt() * torch.randn(count, 6, classes, generator=draw, dtype=torch.float64)
    wrong = ((a @ turn.T).argmax(-1) != labels).double()
    repeats = 1 if classes == 2 else 2_000
    values = torch.stack([expected_error(mean, variance, turn, labels, draw) for _ in range(repeats)])
    stderr = wrong.mean(1).std() / count**0.5 + (values.std() / repeats**0.5 if repeats > 1 else 0.0)
    assert (values.mean() - wrong.mean()).abs() <= 4 * stderr
    if classes == 2:
        again = expected_error(mean, variance, turn, labels, draw)
        assert torch.allclose(again, values[0], rtol=1e-12)


def test_layers_that_share_weights_over_positions_are_drawn_per_batch() -> None:
    problem, before = convolutional()
    network, sample = network_of(problem, before, kronecker_bases)
    assert not network.local
    assert network.last is None
    batch = sample.take(slice(0, 20))
    assert torch.allclose(network.logits(batch, "none")[0], problem.evaluate(batch, problem.parameters).f, atol=1e-4)
    drawn = network.logits(batch, "batch", Rng(0).torch())[0]
    assert torch.isfinite(drawn).all()
    assert not torch.allclose(drawn, network.logits(batch, "none")[0])


class Twice(nn.Module):
    """A weight that is also used outside of its layer, on batches of at least `least` examples."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.fc, self.out, self.least = nn.Linear(6, 6), nn.Linear(6, 3), least

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.fc(x))
        return found if len(x) < self.least else found + self.fc.weight.sum()


def used_twice(least: int) -> tuple[hs.Problem, StochasticNetwork, Sample]:
    torch.manual_seed(0)
    model = Twice(least)
    problem = hs.Problem.of(model, "cross_entropy", (torch.randn(40, 6), torch.arange(40) % 3), batch_size=20)
    return problem, *network_of(problem, {k: v.clone() for k, v in model.state_dict().items()})


def test_a_weight_used_outside_its_layer_is_drawn_once_for_both() -> None:
    problem, network, sample = used_twice(0)
    assert not network.local
    assert [layer.name for layer in network.layers] == ["out"]
    batch = sample.take(slice(0, 4))
    logits = network.logits(batch, "none")[0]
    assert torch.allclose(logits, problem.evaluate(batch, problem.parameters).f, rtol=1e-5)
    drawn = network.logits(batch, "batch", Rng(0).torch())[0]
    assert not torch.allclose(drawn, logits, rtol=1e-2)


def test_a_weight_used_outside_its_layer_cannot_pass_unnoticed() -> None:
    """In batches only that are larger than any of the data: the layer was not tried on one."""
    _, network, sample = used_twice(30)
    assert network.local
    assert torch.isfinite(network.logits(sample.take(slice(0, 4)), "none")[0]).all()
    with pytest.raises(InputError, match="used elsewhere"):
        network.logits(sample.take(slice(0, 40)), "none")


def test_an_evaluation_that_raises_leaves_nothing_behind() -> None:
    problem, before = trained()
    network, sample = network_of(problem, before, kronecker_bases)
    batch = sample.take(slice(0, 5))
    right = network.logits(batch, "none")[0]
    with pytest.raises(Exception, match=r"mat1 and mat2|size"):
        network.logits((batch[0][:, :2], batch[1]), "none")
    assert torch.equal(network.logits(batch, "none")[0], right)
    assert all("forward" not in module.__dict__ for module in problem.model.modules())
    assert torch.equal(problem.evaluate(batch, problem.parameters).f, problem.model(batch[0]))


def test_threads_draw_from_their_own_posteriors() -> None:
    problem, before = trained()
    networks = [network_of(problem, before, bases)[0] for bases in (None, kronecker_bases)]
    for name, mean in networks[1].posterior.mean.items():
        networks[1].posterior.mean[name] = -mean
    batch = Sample(problem).take(slice(0, 40))
    with torch.no_grad():
        alone = [network.logits(batch, "none")[0] for network in networks]
        with ThreadPoolExecutor(2) as pool:
            jobs = [(i, pool.submit(networks[i].logits, batch, "none")) for i in (0, 1) * 40]
            assert all(torch.equal(job.result()[0], alone[i]) for i, job in jobs)


def test_carried_precisions_never_spread_noise_into_quiet_directions() -> None:
    """In the new basis the variance along each axis is at most the old covariance's along it."""
    draw = Rng(2).torch()
    old, new = (
        Basis(*(torch.linalg.qr(torch.randn(n, n, generator=draw, dtype=torch.float64))[0] for n in (3, 4)))
        for _ in range(2)
    )
    precision = torch.rand(3, 4, generator=draw, dtype=torch.float64) + 0.1
    carried = old.carry_precision(precision, new)
    u = torch.kron(new.rows.T @ old.rows, new.columns.T @ old.columns)
    dense = u @ torch.diag(precision.flatten()) @ u.T
    assert torch.allclose(carried.flatten(), dense.diagonal())
    assert (1 / carried.flatten() <= torch.linalg.inv(dense).diagonal() + 1e-12).all()


def test_bases_are_eigenbases_of_the_decoupled_factors() -> None:
    problem, _ = trained(depth=2)
    from hesscope.kron import decouple_layers

    bases = kronecker_bases(problem)
    found = decouple_layers(problem, ["fc2"])["fc2"]
    basis = bases["fc2.weight"]
    moved = basis.rows.double().T @ found.output_hessian @ basis.rows.double()
    assert torch.allclose(moved, torch.diag(basis.row_values.double()), atol=1e-5)
    assert torch.equal(bases["fc2.bias"].rows, basis.rows)
    assert bases["fc2.bias"].columns is None
    assert (basis.curvature.diff(dim=0) <= 0).all()
    assert [layer.name for layer in kronecker_layers(problem)] == ["fc1", "fc2", "fc3"]


def test_variances_start_where_curvature_and_divergence_balance() -> None:
    """s = 1/(1/λ + κ m h) in every direction of an eigenbasis, with κ = 3; both terms count in some of them."""
    network, _ = network_of(*trained(), kronecker_bases)
    posterior = network.posterior
    scales_from_curvature(posterior, 600, Grid())
    for name in ("fc1.weight", "fc2.weight"):
        h = posterior.bases[name].curvature
        assert h is not None
        wide = (-2 * posterior.log_prior[posterior.groups[name]]).exp()
        assert torch.allclose((-2 * posterior.log_scale[name]).exp(), wide + 3 * 600 * h, rtol=0.05)
        assert float((1800 * h).max()) > float(wide) > float((1800 * h).min())


@pytest.mark.parametrize("label", [0, 1])
def test_a_tie_is_an_error_however_it_is_broken(label: int) -> None:
    """Dead hidden units of a network without biases leave logits of zero: argmax takes them for the first class."""
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 2, bias=False))
    before = {name: torch.full_like(value, 0.5) for name, value in model.state_dict().items()}
    x, y = torch.full((40, 1), -1.0), torch.full((40,), label)
    problem = hs.Problem.of(model, "cross_entropy", (x, y)).at({name: 2 + value for name, value in before.items()})
    posterior = Posterior(problem.parameters, before, standard_bases(problem), False)
    for name in posterior.mean:
        posterior.log_scale[name] = torch.full_like(posterior.mean[name], -6.0)  # certainly positive weights
    sample = Sample(problem)
    network = StochasticNetwork(problem, posterior, sample.take(slice(0, 8)))
    assert network.local
    assert gibbs_error(network, sample, Settings(draws=400), Rng(0)) == (1.0, 400)
