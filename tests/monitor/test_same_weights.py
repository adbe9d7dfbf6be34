"""Training with a monitor and without gives the same weights, bit for bit, and the same everything else."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hesscope as hs
from monitor.runs import HELD_OUT, X, Y, monitor_of, network, train


def _with_dropout() -> nn.Module:
    return nn.Sequential(network()[0], nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3))


def _with_batch_norm() -> nn.Sequential:
    return nn.Sequential(network()[0], nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


class _Drawing(nn.Module):
    """Draws from every global source in its forward pass, while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.add_(1)
            x = x * (1 + 0.01 * torch.randn(()) + 0.01 * random.random() + 0.01 * float(np.random.rand()))  # noqa: NPY002
        return self.net(x)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": partial(torch.optim.Adam, lr=0.02),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3),
}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": network,
    "dropout": _with_dropout,
    "batch norm": _with_batch_norm,
    "draws from all sources": _Drawing,
}


def _states(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {
        "weights and buffers": model.state_dict(),
        "optimiser": optimizer.state_dict()["state"],
        "gradients": {name: p.grad for name, p in model.named_parameters()},
        "requires_grad": {name: p.requires_grad for name, p in model.named_parameters()},
        "modes": [module.training for module in model.modules()],
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(legacy=False)["state"]["key"],  # noqa: NPY002
        "python": random.getstate(),
    }


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return bool((a == b).all())
    if isinstance(a, dict):
        return set(a) == set(b) and all(_equal(a[key], b[key]) for key in a)
    return bool(a == b)


def _both(make: Callable[[], nn.Module], optimizer: str, folder: Path, **settings: Any) -> tuple[Any, Any, int]:
    """The states after the same training without and with a monitor, and how many readings there were."""
    found, readings = [], 0
    for watched in (False, True):
        torch.manual_seed(3), random.seed(3), np.random.seed(3)  # noqa: NPY002
        model = make()
        model[0].bias.requires_grad_(False) if isinstance(model, nn.Sequential) else None
        trained = OPTIMIZERS[optimizer]([p for p in model.parameters() if p.requires_grad])
        run = settings.get("compiled", lambda m: m)(model)
        monitor = monitor_of(run, folder, every=2, slow_every=2, renew_every=3) if watched else None
        readings += len(train(model, trained, 9, monitor, settings.get("context"), run))
        found.append(copy.deepcopy(_states(model, trained)))
        if monitor is not None:
            monitor.close()
    return found[0], found[1], readings


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_training_is_the_same(model: str, optimizer: str, tmp_path: Path) -> None:
    alone, watched, readings = _both(MODELS[model], optimizer, tmp_path)
    assert readings == 5
    for what, state in alone.items():
        assert _equal(state, watched[what]), what


def test_under_autocast(tmp_path: Path) -> None:
    context = partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    alone, watched, readings = _both(network, "adam", tmp_path, context=context)
    assert readings == 5
    assert all(_equal(state, watched[what]) for what, state in alone.items())


def test_monitor_called_inside_autocast_and_without_gradients(tmp_path: Path) -> None:
    """Where it is called from changes nothing of what is read."""
    found: list[float | None] = []
    for around in (torch.enable_grad, torch.no_grad, torch.inference_mode, partial(torch.autocast, "cpu")):
        model = network()
        with monitor_of(model, tmp_path, out=tmp_path / f"{len(found)}.jsonl") as monitor, around():
            reading = monitor.step(0)
            assert torch.is_grad_enabled() == (around not in (torch.no_grad, torch.inference_mode))
        assert reading is not None
        found.append(reading.sharpness)
    assert found == [found[0]] * 4


def test_compiled_model(tmp_path: Path) -> None:
    compiled = partial(torch.compile, backend="eager")
    alone, watched, readings = _both(network, "adam", tmp_path, compiled=compiled)
    assert readings == 5
    assert all(_equal(state, watched[what]) for what, state in alone.items())


def test_a_loader_shared_with_the_training_goes_on_where_it_was(tmp_path: Path) -> None:
    """Its own generator, and the seeds that loaders draw from torch's."""
    orders = []
    for watched in (False, True):
        torch.manual_seed(5)
        loader = DataLoader(TensorDataset(X, Y), 16, shuffle=True, generator=torch.Generator().manual_seed(7))
        if watched:
            with monitor_of(network(), tmp_path, data=loader, examples=40) as monitor:
                assert monitor.run.settings["examples"] == 40
        orders.append((torch.cat([y for _, y in loader]), torch.rand(1)))
    assert torch.equal(orders[0][0], orders[1][0])
    assert torch.equal(orders[0][1], orders[1][1])


def test_the_held_out_batch_is_the_monitors_own(tmp_path: Path) -> None:
    """Changing the tensors that were given, in place, does not change what is read."""
    x, y = HELD_OUT[0].clone(), HELD_OUT[1].clone()
    model = network()
    with monitor_of(model, tmp_path, data=(x, y)) as monitor:
        first = monitor.step(0)
        x.mul_(3), y.zero_()
        second = monitor.step(1)
    assert first is not None
    assert second is not None
    assert first.loss == second.loss


def test_readings_follow_weights_and_buffers(tmp_path: Path) -> None:
    """Also those of batch-norm: in eval mode its running statistics are part of the loss."""
    model = _with_batch_norm()
    with monitor_of(model, tmp_path) as monitor:
        before = monitor.step(0)
        model[1].running_var.mul_(4.0)
        after = monitor.step(1)
    truth = hs.Problem.of(model.eval(), "cross_entropy", HELD_OUT)
    assert before is not None
    assert after is not None
    assert after.loss == pytest.approx(truth.loss_value(), rel=1e-6)
    assert abs(before.loss - after.loss) > 1e-3
    assert after.sharpness == pytest.approx(float(hs.eigenpairs(truth, 1).values[0]), rel=0.02)
