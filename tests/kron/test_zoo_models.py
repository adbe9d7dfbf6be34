"""The zoo's models: shapes, names of layers, reproducible weights, and files with trained ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import hesscope as hs
from hesscope.errors import InputError
from hesscope.kron import decouple
from hesscope.zoo.models import (
    ResNet18,
    SmallGPT,
    cifar_resnet,
    fully_connected,
    lenet5,
    load_cifar_resnet,
    vgg11,
)


def test_shapes_and_names() -> None:
    image = torch.zeros(2, 3, 32, 32)
    assert lenet5()(image).shape == (2, 10)
    assert sum(p.numel() for p in lenet5().parameters()) == 62006
    assert vgg11(8)(image).shape == (2, 10)
    assert [n for n, m in vgg11(8).named_modules() if isinstance(m, torch.nn.Conv2d)] == [
        f"conv{i}" for i in range(1, 9)
    ]
    assert ResNet18(8)(image).shape == (2, 100)
    assert sum(isinstance(m, torch.nn.Conv2d) for m in ResNet18(8).modules()) == 20  # 17 and three shortcuts
    assert fully_connected(7, 3, 20, 5)(torch.zeros(4, 4, 5)).shape == (4, 5)
    assert SmallGPT()(torch.zeros(2, 5, dtype=torch.long)).shape == (2, 5, 65)
    assert sum(p.numel() for p in cifar_resnet(20).parameters()) == 269722
    assert sum(p.numel() for p in cifar_resnet(32).parameters()) == 464154


def test_weights_come_from_the_named_generator_only() -> None:
    torch.manual_seed(0)
    before = torch.rand(1)
    torch.manual_seed(0)
    a, b = fully_connected(4, 1, 3, 2, rng=hs.Rng(5)), fully_connected(4, 1, 3, 2, rng=hs.Rng(5))
    assert torch.equal(torch.rand(1), before)
    assert torch.equal(a.fc1.weight, b.fc1.weight)
    assert not torch.equal(a.fc1.weight, fully_connected(4, 1, 3, 2, rng=hs.Rng(6)).fc1.weight)


def test_trained_weights_are_read_with_their_statistics(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cifar_resnet(8).train()
        model(torch.randn(8, 3, 32, 32))
    state = {k: v.numpy() for k, v in model.state_dict().items() if "num_batches" not in k}
    np.savez(tmp_path / "resnet8_cifar10.npz", **state)
    loaded = load_cifar_resnet(tmp_path, 8)
    x = torch.randn(2, 3, 32, 32, generator=hs.Rng(1).torch())
    assert torch.equal(loaded(x), model.eval()(x))
    with pytest.raises(InputError, match="resnet20_cifar10"):
        load_cifar_resnet(tmp_path, 20)
    with pytest.raises(InputError, match="6 k"):
        cifar_resnet(21)


def test_decoupling_a_residual_network_with_frozen_statistics() -> None:
    model = cifar_resnet(8)
    x = torch.randn(3, 3, 8, 8, generator=hs.Rng(2).torch())
    d = decouple(hs.Problem.of(model, "cross_entropy", (x, torch.tensor([0, 3, 9]))), "layer2.0.conv1")
    assert d.curvature == "Gauss-Newton factors, exact here"
    assert d.positions == 16
    assert d.output_hessian.shape == (32, 32)
    assert d.input_autocorrelation.shape == (144, 144)
