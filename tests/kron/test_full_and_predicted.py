"""Appendix C, the closed-form eigenspace and logit gradients, where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import hesscope as hs
import kron.kron_cases as cases
from hesscope.kron import (
    approximate_full_eigenpairs,
    decouple,
    logit_gradients,
    predicted_output_eigenspace,
    subspace_overlap,
)
from hesscope.zoo.models import fully_connected, lenet5


def _top(matrix: torch.Tensor, k: int) -> torch.Tensor:
    return torch.linalg.eigh(matrix)[1][:, -k:]


@pytest.mark.parametrize("which", ["mlp", "batch_norm"])
def test_full_eigenpairs_are_exact_for_one_example(which: str) -> None:
    """With one example inputs are their means, so B E[M] Bᵀ is the Gauss-Newton matrix itself."""
    model = fully_connected(5, 2, 4, 4, batch_norm=which == "batch_norm", rng=hs.Rng(0)).double().eval()
    x = 9 * torch.randn(1, 4, generator=hs.Rng(1).torch(), dtype=torch.float64)
    problem = hs.Problem.of(model, "cross_entropy", (x, torch.tensor([2])))
    truth = hs.GaussNewton(problem).dense()
    found = approximate_full_eigenpairs(problem, k=3)
    assert np.allclose(found.values, torch.linalg.eigvalsh(truth).flip(0)[:3].numpy(), rtol=1e-9)
    assert subspace_overlap(found.vectors, _top(truth, 3)) == pytest.approx(1.0, abs=1e-9)
    assert torch.allclose(found.vectors.T @ found.vectors, torch.eye(3).double(), atol=1e-10)
    printed = approximate_full_eigenpairs(problem, k=3, form="printed")
    assert not np.allclose(printed.values, found.values, rtol=1e-3)
    assert torch.allclose(printed.vectors.T @ printed.vectors, torch.eye(3).double(), atol=1e-10)


def test_full_eigenpairs_are_those_of_the_matrix_they_name() -> None:
    problem, _ = cases.relu_mlp()
    found = approximate_full_eigenpairs(problem, k=16)
    means = [decouple(problem, name).input_mean for name in found.layers]
    lift = torch.zeros(problem.space.size, 16, dtype=torch.float64)
    start = 0
    for name, mean in zip(found.layers, means, strict=True):
        m = problem.parameters[f"{name}.bias"].numel()
        eye = torch.eye(m, dtype=torch.float64)
        lift[problem.space.slice_of(f"{name}.weight"), start : start + m] = torch.kron(eye, mean[:, None])
        lift[problem.space.slice_of(f"{name}.bias"), start : start + m] = eye
        start += m
    dense = lift @ found.output_hessian @ lift.T
    assert np.allclose(torch.linalg.eigvalsh(dense).flip(0)[:16].numpy(), found.values, rtol=1e-9, atol=1e-14)
    assert torch.allclose(dense @ found.vectors, found.vectors * torch.as_tensor(found.values), atol=1e-11)
    for index, name in enumerate(found.layers):
        place = slice(6 * index, 6 * index + len(decouple(problem, name).output_hessian))
        assert torch.allclose(found.output_hessian[place, place], decouple(problem, name).output_hessian, atol=1e-15)


def test_full_eigenpairs_with_convolutions_leave_other_parameters_at_zero() -> None:
    model = lenet5((1, 16, 16), 3, fc1=5, rng=hs.Rng(2)).double()
    x = torch.rand(6, 1, 16, 16, generator=hs.Rng(3).torch(), dtype=torch.float64)
    problem = hs.Problem.of(
        model, "cross_entropy", (x, torch.tensor([0, 1, 2, 0, 1, 2])), params=["fc*", "conv1.weight"]
    )
    found = approximate_full_eigenpairs(problem, k=2)
    assert found.layers == ("conv1", "fc1", "fc2", "fc3")
    assert found.vectors.shape == (problem.space.size, 2)


def _rectified(n: int, d: int, c: int, examples: int, seed: int, centred: bool) -> hs.Problem:
    """The network and the input of Section 4."""
    draw = hs.Rng(seed).torch()
    model = nn.Sequential(nn.Linear(d, n, bias=False), nn.ReLU(), nn.Linear(n, c, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.randn(n, d, generator=draw) / d**0.5)
        model[2].weight.copy_(torch.randn(c, n, generator=draw) / n**0.5)
    x = torch.randn(examples, d, generator=draw, dtype=torch.float64)
    x = x if centred else x.clamp_min(0)
    return hs.Problem.of(model, "cross_entropy", (x, torch.zeros(examples, dtype=torch.long)))


def test_activation_frequencies_repair_the_closed_form() -> None:
    """Theorem 4.2 takes every unit to be on half of the time; rectified inputs have a mean, so they are not."""
    problem = _rectified(60, 400, 4, 1500, 0, centred=False)
    found = predicted_output_eigenspace(problem, "0")
    x = torch.cat([batch[0] for batch in problem.batches])
    on = (x @ problem.parameters["0.weight"].T > 0).double().mean(0)
    assert torch.allclose(found.frequencies[0], on, atol=1e-12)
    weight = problem.parameters["0.weight"]
    law = torch.special.ndtr(weight.sum(1) / (torch.pi - 1) ** 0.5 / weight.norm(dim=1))
    assert float((on - law).abs().max()) < 4 * 0.5 / 1500**0.5 + 0.03  # Berry-Esseen at d = 400
    top = _top(decouple(problem, "0").output_hessian, 3)
    corrected, printed = subspace_overlap(found.corrected, top), subspace_overlap(found.printed, top)
    assert corrected > 0.95
    assert printed < corrected - 0.1


def test_printed_form_is_right_for_centred_inputs() -> None:
    problem = _rectified(60, 60, 4, 3000, 1, centred=True)
    found = predicted_output_eigenspace(problem, "0")
    top = _top(decouple(problem, "0").output_hessian, 3)
    assert subspace_overlap(found.corrected, top) > 0.93
    assert subspace_overlap(found.printed, top) > 0.85


def test_closed_form_with_all_units_on_is_exact() -> None:
    problem = _rectified(6, 5, 3, 40, 2, centred=False)
    problem = problem.at({"0.weight": problem.parameters["0.weight"].abs() + 0.1}, partial=True)
    found = predicted_output_eigenspace(problem, "0")
    top = _top(decouple(problem, "0").output_hessian, 2)
    assert subspace_overlap(found.corrected, top) == pytest.approx(1.0, abs=1e-9)
    last = predicted_output_eigenspace(problem, "2")
    assert torch.allclose(last.corrected.T @ torch.ones(3).double(), torch.zeros(2).double(), atol=1e-12)


def test_logit_gradients_are_class_means_and_split_the_output_hessian() -> None:
    problem, _ = cases.relu_mlp(classes=3, examples=11)
    found = logit_gradients(problem, "fc2")
    x = torch.cat([batch[0] for batch in problem.batches])
    y = torch.cat([batch[1] for batch in problem.batches])
    gamma = torch.zeros(3, 3, 6, dtype=torch.float64)
    delta = torch.zeros(3, 3, 36, dtype=torch.float64)
    within = torch.zeros(6, 6, dtype=torch.float64)
    columns = []
    for xi in x:
        h = torch.relu(problem.model.fc1(xi)).detach()
        z = problem.model.fc2(h).detach()
        g = torch.autograd.functional.jacobian(lambda z: problem.model.fc3(torch.relu(z)), z)
        p = problem.model.fc3(torch.relu(z)).softmax(0).detach()
        q = torch.diag(p.sqrt()) @ (torch.eye(3).double() - torch.outer(torch.ones(3).double(), p))
        columns.append((q @ g, h))
    for i in range(3):
        mine = [columns[r] for r in range(11) if y[r] == i]
        gamma[i] = torch.stack([n for n, _ in mine]).mean(0)
        delta[i] = torch.stack([torch.einsum("jm,n->jmn", n, h).flatten(1) for n, h in mine]).mean(0)
        within += sum((n - gamma[i]).T @ (n - gamma[i]) for n, _ in mine) / 11
    assert torch.allclose(found.gamma, gamma, rtol=1e-10, atol=1e-14)
    assert torch.allclose(found.delta, delta, rtol=1e-10, atol=1e-14)
    between = torch.einsum("i,ija,ijb->ab", torch.as_tensor(found.share), gamma, gamma)
    assert torch.allclose(found.output_hessian, between + within, rtol=1e-10, atol=1e-14)
    assert torch.allclose(found.output_hessian, decouple(problem, "fc2").output_hessian, rtol=1e-10, atol=1e-14)
    assert found.explained() == pytest.approx(float(between.trace() / found.output_hessian.trace()))


def test_clustering_shares() -> None:
    problem, _ = cases.relu_mlp(classes=3, examples=11)
    found = logit_gradients(problem, "fc2")
    by_logit, by_class = found.clustering("gamma")
    points = found.gamma
    centre = points.mean((0, 1))
    total = (points - centre).square().sum()
    rest = (points - points.mean(0, keepdim=True) - points.mean(1, keepdim=True) + centre).square().sum()
    assert by_logit + by_class + float(rest / total) == pytest.approx(1.0)
    assert by_logit > 0
    assert found.embedding("delta").shape == (3, 3, 2)
