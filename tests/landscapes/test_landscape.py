"""hs.landscape: exact on quadratic losses, real steps of optimisers, real checkpoints, and nothing of the user's moves."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hesscope as hs
from hesscope.landscapes.optimiser_step import next_step
from hesscope.plots.landscape import landscape_picture
from hesscope.plots.picture import Surface
from hesscope.plots.static import figures_of
from hesscope.report.interactive import specification


def _regression(dtype: torch.dtype = torch.float64) -> tuple[nn.Linear, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Linear(5, 2).to(dtype)
    return model, torch.randn(40, 5, dtype=dtype), torch.randn(40, 2, dtype=dtype)


def _mlp() -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    return model, torch.randn(30, 4), torch.arange(30) % 3


def _dense(model: nn.Linear, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient and Hessian of Σ|Wx + b − y|², by hand."""
    ones = torch.cat([x, x.new_ones(len(x), 1)], 1)
    rest = model(x).detach() - y
    outer = 2 * ones.T @ ones
    slope = 2 * rest.T @ ones  # (2, 6): weights and bias of both outputs
    flat = torch.cat([slope[:, :5].reshape(-1), slope[:, 5]])
    H = torch.zeros(12, 12, dtype=x.dtype)
    for out in range(2):
        place = [*range(5 * out, 5 * out + 5), 10 + out]
        H[np.ix_(place, place)] = outer
    return flat, H


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_quadratic_loss_is_its_own_model(reduction: str) -> None:
    model, x, y = _regression()
    problem = hs.Problem.of(model, nn.MSELoss(reduction=reduction), (x, y), batch_size=16)
    scale = 1.0 if reduction == "sum" else 1 / y.numel()
    slope, H = _dense(model, x, y)
    draw = torch.Generator().manual_seed(0)
    one, two = torch.randn(2, 12, generator=draw, dtype=torch.float64)
    found = hs.landscape(problem, [one, two], plane=True, reach=2.0, points=7)
    for line, d in zip(found.lines, (one, two), strict=True):
        assert line.slope == pytest.approx(scale * float(slope @ d), rel=1e-12)
        assert line.curvature == pytest.approx(scale * float(d @ H @ d), rel=1e-12)
        assert line.length == pytest.approx(float(d.norm()), rel=1e-12)
        np.testing.assert_allclose(line.losses, line.model(line.places), rtol=1e-12)
        assert not line.breaks.found
        assert line.breaks.low == 2.0 * 64
    assert found.plane is not None
    np.testing.assert_allclose(found.plane.losses, found.plane.model(), rtol=1e-12)
    assert found.plane.curvatures[0, 1] == pytest.approx(scale * float(one @ H @ two), rel=1e-12)
    # Orientation: columns go along the first direction.
    moved = copy.deepcopy(model)
    nn.utils.vector_to_parameters(
        nn.utils.parameters_to_vector(model.parameters()).detach() + 2 * one, moved.parameters()
    )
    assert found.plane.losses[3, 6] == pytest.approx(nn.MSELoss(reduction=reduction)(moved(x), y).item(), rel=1e-12)


class _Quartic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.0]))

    def forward(self, x: Tensor) -> Tensor:
        w = self.w.expand(len(x))
        return 0.3 + 2.0 * w**2 + 7.0 * w**4


@pytest.mark.parametrize("share", [0.03, 0.1])
def test_a_network_of_one_parameter_breaks_where_its_quartic_says(share: float) -> None:
    problem = hs.Problem.of(_Quartic(), lambda outputs, targets: outputs, (torch.zeros(3, 1), torch.zeros(3)))
    found = hs.landscape(problem, torch.tensor([2.0]), share=share)
    (line,) = found.lines
    truth = math.sqrt(share * 2.0 / 7.0) / 2.0  # |d| = 2
    for side in (line.backward, line.forward, line.breaks):
        assert side.low <= truth <= side.high
        assert side.error < 0.004 * truth
    assert found.dtype == "float64"
    assert line.curvature == pytest.approx(4.0 * 4, rel=1e-12)


OPTIMISERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-2, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-1),
    "fused": lambda p: torch.optim.Adam(p, lr=1e-2, fused=True),
}


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_the_optimisers_step_is_the_one_it_makes(kind: str) -> None:
    model, x, y = _mlp()
    first, last = list(model[0].parameters()), list(model[2].parameters())
    optimiser = OPTIMISERS[kind]([{"params": last, "lr": 3e-2}, {"params": first}])
    torch.optim.lr_scheduler.StepLR(optimiser, 5)  # replaces optimiser.step by a function that holds the optimiser

    def backward() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]

    for _ in range(3):
        backward()
        optimiser.step()
    called: list[int] = []
    optimiser.register_step_post_hook(lambda *_: called.append(1))
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=8)
    before, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimiser.state_dict())
    found = hs.landscape(problem, optimiser, points=5)
    assert called == []
    # Its saved state steps alike. Groups of other order than the model's need their names in it.
    names = [[n for n, p in model.named_parameters() for q in g["params"] if p is q] for g in optimiser.param_groups]
    named = copy.deepcopy(state)
    for group, own in zip(named["param_groups"], names, strict=True):
        group["param_names"] = own
    (saved,) = hs.landscape(problem, named, points=5).lines
    assert saved.name == found.lines[0].name == f"step of {type(optimiser).__name__}"
    np.testing.assert_allclose(saved.losses, found.lines[0].losses, rtol=1e-6)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    for number, moments in optimiser.state_dict()["state"].items():
        for key, value in moments.items():
            assert (
                torch.equal(torch.as_tensor(value), torch.as_tensor(state["state"][number][key]))
                if value is not None
                else True
            )
    old = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    backward()
    optimiser.step()
    moved = nn.utils.parameters_to_vector(model.parameters()).detach() - old
    (line,) = found.lines
    assert line.length == pytest.approx(float(moved.norm()), rel=1e-4)
    at_one = float(np.interp(1.0, line.places, line.losses))
    assert at_one == pytest.approx(F.cross_entropy(model(x), y).item(), rel=1e-6)
    assert line.along == "step"


def test_parameters_of_one_value_are_told_apart() -> None:
    """Biases of zero, with moments of their own: in another order, they would step elsewhere."""
    model, x, y = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)), torch.randn(20, 3), torch.arange(20) % 3
    for layer in (model[0], model[2]):
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    optimiser = torch.optim.SGD([*reversed([*model.parameters()])], lr=0.1, momentum=1.0)
    for number, p in enumerate(model.parameters()):
        optimiser.state[p]["momentum_buffer"] = torch.full_like(p, 100.0 * number)
    step = next_step(hs.Problem.of(model, "cross_entropy", (x, y)), optimiser)
    assert [round(float(part.mean())) for part in torch.split(step, [9, 3, 9, 3])] == [0, -10, -20, -30]


def test_checkpoints_are_both_ends_of_their_line() -> None:
    model, x, y = _mlp()
    here = hs.Problem.of(model, "cross_entropy", (x, y))
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    there = hs.Problem.of(other, "cross_entropy", (x, y))
    for given in (other.state_dict(), there, {"later": there, "this one": here}):
        (line,) = hs.landscape(here, given, points=7).lines
        ends = dict(zip(line.places.round(9).tolist(), line.losses.tolist(), strict=True))
        assert ends[0.0] == pytest.approx(here.loss_value(), rel=1e-6)
        assert ends[1.0] == pytest.approx(there.loss_value(), rel=1e-6)


def test_buffers_stay_and_are_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    here = hs.Problem.of(model, "cross_entropy", (x, y))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["1.running_mean"] += 1.0
    state["0.weight"] += 0.1
    found = hs.landscape(here, state, points=3)
    assert "1.running_mean" in found.notes[0]
    assert f"{here.at(state).loss_value():.6g}" in found.notes[0]


def test_random_filters_have_the_networks_norms() -> None:
    from hesscope.landscapes.filters import filter_normalised

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 6, 2, groups=2), nn.Flatten(), nn.Linear(96, 4)
    ).eval()
    problem = hs.Problem.of(model, "cross_entropy", (torch.randn(6, 2, 5, 5), torch.arange(6) % 4))
    flat = filter_normalised(problem, hs.Rng(0))
    parts = dict(zip(problem.space.names, problem.space.unpack(flat), strict=True))
    for name, part in parts.items():
        own = problem.parameters[name].double()
        if own.ndim < 2:
            assert not part.any()
            continue
        if name == "2.weight":  # of each group, what makes one channel
            part, own = (torch.cat([t[:2], t[2:]], 1) for t in (part, own))
            part, own = part.movedim(1, 0), own.movedim(1, 0)
        torch.testing.assert_close(part.flatten(1).norm(dim=1), own.flatten(1).norm(dim=1), rtol=1e-12, atol=0)
    again = filter_normalised(problem, hs.Rng(0))
    assert torch.equal(flat, again)
    assert not torch.equal(flat, filter_normalised(problem, hs.Rng(1)))


def test_eigenvectors_point_downhill_with_their_eigenvalues() -> None:
    model, x, y = _mlp()
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    pairs = hs.eigenpairs(hs.Hessian(problem), 2)
    found = hs.landscape(problem, pairs, points=5)
    for line, value in zip(found.lines, pairs.values, strict=True):
        assert line.curvature == pytest.approx(value, rel=1e-4)
        assert line.slope <= 0
        assert line.breaks.found
    assert found.products == 2


def test_losses_are_evaluated_in_float64_also_where_a_model_casts() -> None:
    class Casting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x.float(), self.layer.weight.float(), self.layer.bias.float())

    model, x, y = _mlp()
    assert hs.landscape(hs.Problem.of(model, "cross_entropy", (x, y)), "gradient", points=3).dtype == "float64"
    torch.manual_seed(0)
    found = hs.landscape(hs.Problem.of(Casting(), "cross_entropy", (x, y)), "gradient", points=3)
    assert found.dtype == "float64"
    assert found.lines[0].noise < 1e-13


def test_it_is_saved_and_drawn_alike(tmp_path: Path) -> None:
    model, x, y = _mlp()
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    found = hs.landscape(problem, "random", plane=True, points=5, rng=3)
    found.save(tmp_path / "landscape")
    again = hs.Landscape.load(tmp_path / "landscape")
    assert again.plane is not None
    np.testing.assert_array_equal(again.lines[0].losses, found.lines[0].losses)
    assert again.lines[0].breaks == found.lines[0].breaks
    picture = landscape_picture(again)
    views = specification(picture)["views"]
    assert len(views) == 4
    assert set(figures_of(picture)) == {"landscape-1", "landscape-2", "landscape-plane"}
    surface = picture.panels[2].marks[0]
    assert isinstance(surface, Surface)
    np.testing.assert_allclose(views[2]["data"][0]["z"], surface.z, rtol=1e-4)
    assert views[3]["data"][0]["zmax"] == views[2]["data"][0]["zmax"]


def test_a_loss_that_overflows_is_shown_as_it_is() -> None:
    class Exploding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([1.0]))

        def forward(self, x: Tensor) -> Tensor:
            return torch.exp(self.w * 20.0).expand(len(x))

    problem = hs.Problem.of(Exploding(), lambda outputs, targets: outputs, (torch.zeros(2, 1), torch.zeros(2)))
    found = hs.landscape(problem, torch.ones(1), reach=100.0, points=5)
    assert np.isinf(found.lines[0].losses[-1])
    assert found.lines[0].breaks.found
    assert figures_of(landscape_picture(found))
