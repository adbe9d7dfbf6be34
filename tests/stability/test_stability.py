"""hs.stability against dense matrices, single batches and steps taken by hand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim

import hesscope as hs
from hesscope.results.stability import ceiling
from hesscope.step_stability import Preconditioned, binding, read_optimizer
from hesscope.step_stability.batches import batch_curvature
from hesscope.step_stability.line_search import real_step
from hesscope.step_stability.matching import members_of
from hesscope.zoo.gpt import SmallGPT
from stability.quadratics import Quadratic, problem_of

DRAW = torch.Generator().manual_seed(5)
X = torch.randn(48, 5, generator=DRAW, dtype=torch.float64)
Y = torch.randint(0, 3, (48,), generator=DRAW)


def trained(make: Any, steps: int = 10, x: torch.Tensor = X, y: torch.Tensor = Y) -> tuple[Any, Any, hs.Problem]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    optimizer = make(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
    return model, optimizer, hs.Problem.of(model, "cross_entropy", (x, y))


def _flat(model: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradient and dense Hessian of the mean loss, by torch.func on one flat vector."""
    named = dict(model.named_parameters())
    sizes = [p.numel() for p in named.values()]

    def value(flat: torch.Tensor) -> torch.Tensor:
        pieces = dict(zip(named, torch.split(flat, sizes), strict=True))
        state = {name: piece.view_as(named[name]) for name, piece in pieces.items()}
        return nn.functional.cross_entropy(torch.func.functional_call(model, state, (x,)), y)

    here = torch.cat([p.detach().reshape(-1) for p in named.values()])
    return torch.func.grad(value)(here), torch.func.hessian(value)(here)


def test_batch_sharpness_and_noise_are_those_of_the_batches() -> None:
    model, optimizer, _ = trained(lambda p: optim.Adam(p, lr=0.05))
    parts = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 48, 8)]
    problem = hs.Problem.of(model, "cross_entropy", parts)
    found = hs.stability(problem, optimizer, line_search=False, by=["layer"]).batch
    assert found is not None
    inverse = read_optimizer(problem, optimizer).inverse_preconditioner
    above, below, seen, seen_below, away = [], [], [], [], []
    whole = _flat(model, X, Y)[0]
    for x, y in parts:
        g, h = _flat(model, x, y)
        above.append(float(g @ h @ g))
        below.append(float(g @ g))
        u = inverse * g
        seen.append(float(u @ h @ u))
        seen_below.append(float(g @ u))
        away.append(8 * float((g - whole) @ (g - whole)) / (1 - 8 / 48))
    assert found.sharpness == pytest.approx(np.sum(above) / np.sum(below), rel=1e-9)
    assert found.preconditioned == pytest.approx(np.sum(seen) / np.sum(seen_below), rel=1e-9)
    assert found.noise_scale == pytest.approx(np.mean(away) / float(whole @ whole), rel=1e-9)
    assert (found.batches, found.batch_size, found.examples) == (6, 8.0, 48)


def test_single_examples_give_the_whole_noise_scale() -> None:
    """With every example a batch of its own nothing is sampled: tr Σ/|G|² of the data."""
    model, optimizer, problem = trained(lambda p: optim.SGD(p, lr=0.05))
    found = hs.stability(problem, optimizer, batch_size=1, batches=48, line_search=False, by=[]).batch
    assert found is not None
    each = torch.stack([_flat(model, X[i : i + 1], Y[i : i + 1])[0] for i in range(48)])
    mean = each.mean(0)
    trace = float((each - mean).square().sum() / 47)
    assert found.noise_scale == pytest.approx(trace / float(mean @ mean), rel=1e-9)


def test_the_errors_of_batches_are_calibrated() -> None:
    """Over draws of the batches, estimates scatter as their standard errors say."""
    torch.manual_seed(1)
    x = torch.randn(600, 5, dtype=torch.float64)
    y = torch.randint(0, 3, (600,))
    _, optimizer, problem = trained(lambda p: optim.SGD(p, lr=0.05), x=x, y=y)
    operator = Preconditioned(hs.Hessian(problem), read_optimizer(problem, optimizer))
    found = [batch_curvature(problem, operator, 8, 16, hs.Rng(seed)) for seed in range(16)]
    scores = []
    for key in ("sharpness", "noise_scale"):
        values = np.array([getattr(b, key) for b in found])
        errors = np.array([getattr(b, f"{key}_stderr") for b in found])
        scores.append(float(np.std(values, ddof=1) / np.sqrt(np.mean(errors**2))))
    assert all(0.5 < score < 1.7 for score in scores), scores


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda p: optim.AdamW(p, lr=0.05, fused=True),
        lambda p: optim.NAdam(p, lr=0.05),
        lambda p: optim.RMSprop(p, lr=0.05, centered=True, momentum=0.5),
    ],
)
def test_the_real_step_is_the_next_one(make: Any) -> None:
    model, optimizer, problem = trained(make)
    members = members_of(problem, optimizer, None, None)
    kept = {name: p.detach().clone() for name, p in model.named_parameters()}
    step = real_step(problem, members, problem.gradient())
    assert all(torch.equal(p, kept[name]) for name, p in model.named_parameters())
    older = copy.deepcopy(optimizer.state_dict())  # counts were plain numbers once
    for state in older["state"].values():
        state.update({key: float(state[key]) for key in ("step", "mu_product") if key in state})
    again = real_step(problem, members_of(problem, older, None, None), problem.gradient())
    torch.testing.assert_close(again, step)
    optimizer.zero_grad()
    torch.autograd.backward(nn.functional.cross_entropy(model(X), Y))
    optimizer.step()
    moved = torch.cat([(p.detach() - kept[name]).reshape(-1) for name, p in model.named_parameters()])
    torch.testing.assert_close(step, moved)


def test_critical_sharpness_on_a_quadratic() -> None:
    """Along gradient descent's step of a quadratic the loss rises from 2|g|²/gᵀHg on."""
    model = Quadratic()
    with torch.no_grad():
        model.b.fill_(1.0)
    optimizer = optim.SGD(model.parameters(), lr=1e-3)
    found = hs.stability(problem_of(model), optimizer, gauss_newton=False, by=["tensor"]).step
    assert found is not None
    g = model.curvature @ model.flat().detach()
    exact = 2 * float(g @ g) / float(g @ model.curvature @ g)
    assert found.calm_rate <= exact <= found.rising_rate <= 1.021 * found.calm_rate
    assert found.sharpness == pytest.approx(2 / exact, rel=0.02)


def test_a_step_uphill_says_so() -> None:
    model, optimizer, problem = trained(lambda p: optim.SGD(p, lr=0.1, momentum=0.99))
    for p in model.parameters():
        optimizer.state[p]["momentum_buffer"] = -100 * p.grad
    found = hs.stability(problem, optimizer, by=[])
    assert found.step is not None
    assert np.isnan(found.step.calm_rate)
    assert "uphill" in str(found)


def test_binding_blocks_against_dense_matrices() -> None:
    _, optimizer, problem = trained(lambda p: optim.Adam(p, lr=0.05))
    state = read_optimizer(problem, optimizer)
    dense = Preconditioned(hs.Hessian(problem), state).dense()
    values, vectors = torch.linalg.eigh(dense)
    few = hs.eigenpairs(Preconditioned(hs.Hessian(problem), state), 5, tol=1e-8)
    for kind in ("layer", "neuron"):
        found = binding(problem, few, kind)
        partition = hs.Partition.by(kind, problem)
        assert found.share.sum() == pytest.approx(1)
        for number, name in enumerate(found.names):
            inside = partition.labels == partition.names.index(name)
            assert found.share[number] == pytest.approx(float(vectors[inside, -1].square().sum()), abs=1e-6)
            kept = dense[~inside][:, ~inside]
            exact = float(torch.linalg.eigvalsh(kept)[-1])
            assert found.frozen[number] <= 1.02 * exact
            assert exact <= found.frozen_at_most[number] * (1 + 1e-9)
    # The derivative of log λ in the log of a block's rate is its share.
    names = ["2.weight", "2.bias"]
    nudged = torch.linalg.eigvalsh(Preconditioned(hs.Hessian(problem), state.scaled(names, 1 + 1e-5)).dense())[-1]
    slope = float(nudged / values[-1] - 1) / 1e-5
    assert binding(problem, few, "layer").share[1] == pytest.approx(slope, rel=1e-3)


def test_predictions_are_exact_once_every_pair_is_known() -> None:
    model = Quadratic()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    problem = problem_of(model)
    every = hs.eigenpairs(Preconditioned(hs.Hessian(problem), read_optimizer(problem, optimizer)), 12)
    found = binding(problem, every, "tensor")
    labels = hs.Partition.by("tensor", problem).labels
    for number in range(3):
        scale = torch.where(labels == number, 0.5**0.5, 1.0)
        halved = torch.linalg.eigvalsh(scale[:, None] * model.curvature * scale)[-1]
        assert found.halved[number] == pytest.approx(float(halved))
        rest = labels != number
        left = torch.linalg.eigvalsh(model.curvature[rest][:, rest])[-1]
        assert found.frozen[number] == pytest.approx(float(left))


def test_a_whole_result_of_a_transformer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = SmallGPT(11, 8, 2, 1, 6)
    tokens = torch.randint(0, 11, (12, 7))
    x, y = tokens[:, :-1], tokens[:, 1:]
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()))
        optimizer.step()
    before = torch.random.get_rng_state()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    found = hs.stability(problem, optimizer, k=3, batch_size=3, rng=0)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    assert [one.by for one in found.bindings] == ["layer", "head", "neuron"]
    assert found.gauss_newton is not None
    assert found.gauss_newton.sharpness > 0
    again = hs.Stability.load(found.save(tmp_path / "stability"))
    assert str(again) == str(found)
    # No rate without its sentence.
    text = str(found)
    assert ceiling("AdamW") in text
    assert "a ceiling, not advice" in text.split("critical rate")[1]
    assert again.binding("head").names == found.binding("head").names


def test_parameters_that_no_gradient_reached_are_named() -> None:
    """An embedding row whose token was never seen has a denominator of eps: the edge it sets is not to be trusted."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(4, 3), nn.Flatten(), nn.Linear(6, 2)).double()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    seen, y = torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1])
    for _ in range(3):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(seen), y))
        optimizer.step()
    problem = hs.Problem.of(model, "cross_entropy", (torch.tensor([[0, 1], [3, 3]]), y))
    assert any("below eps" in note for note in hs.stability(problem, optimizer).notes)
    known = hs.Problem.of(model, "cross_entropy", (seen, y))
    assert not any("below eps" in note for note in hs.stability(known, optimizer).notes)


def test_words_for_networks_without_an_edge() -> None:
    """One parameter, no gradient, nowhere convex: each is said in words, none is divided by zero."""
    one = nn.Linear(1, 1, bias=False)
    problem = hs.Problem.of(one, "mse", (torch.ones(5, 1), torch.zeros(5, 1)))
    found = hs.stability(problem, optim.SGD(one.parameters(), lr=0.1))
    assert found.critical_rate == pytest.approx(1.0)
    assert found.binding("layer").gain("Linear") == float("inf")
    assert "binding layers: Linear 100%\n" in str(found)
    with torch.no_grad():
        one.weight.zero_()
    still = hs.stability(problem.at(one.state_dict()), optim.SGD(one.parameters(), lr=0.1))
    assert "nothing changes" in str(still)
    model = Quadratic()
    with torch.no_grad():
        model.b.fill_(1.0)
    concave = hs.Problem.of(model, lambda m: -m.value())
    found = hs.stability(concave, optim.SGD(model.parameters(), lr=0.1), by=["tensor"])
    assert found.critical_rate == float("inf")
    assert "no critical rate" in str(found)
    assert "falls at every rate" in str(found)
