"""Data and trained networks for this paper's experiments; several models are trained at once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from ..._version import __version__
from ...curvature import Problem
from ...errors import refuse
from ...operators.content import digest
from ...rng import Rng
from ...zoo.data import Examples, load
from ...zoo.models import fully_connected, initialised_by, lenet5, vgg11
from ...zoo.resnets import ResNet18
from ...zoo.training import descend, shuffled_batches
from ..long_runs import Kept, progress

NETWORKS = ("dense", "lenet5", "vgg11", "resnet18")
NARROW = 64  # dense networks up to this width are trained together: beyond, stacked weights are no faster


@dataclass(frozen=True)
class Setting:
    """A network, its data and how it is trained."""

    data: str = "digits"  # or "mnist", "cifar10"
    examples: int | None = None
    network: str = "dense"  # or "lenet5", "vgg11", "resnet18"
    width: int = 32
    depth: int = 2
    fc1: int = 120  # of LeNet5
    batch_norm: bool = False
    xavier: bool = False  # weights as Glorot & Bengio and biases of zero, as the paper words it; else torch's own
    random_labels: bool = False
    epochs: int = 30
    batch_size: int = 128
    rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    measured_on: int | None = None  # examples of the Hessian, the first of those trained on; all for None
    data_dir: str | None = None
    seed: int = 0


# What the paper words in two ways that exclude each other, and all its sizes have in common.
START = "Weights start as torch has them, where the paper says both that and Xavier's with biases of zero, which torch does not have."
# What default sizes share, so that networks trained for one experiment serve the others: all of MNIST for five epochs at
# the paper's rate; and the 10,000 images of CIFAR-10 at hand for twenty epochs with momentum in batches of 32, for at five times
# the paper's rate and without momentum LeNet5 still had a loss of 1.85 after fifteen of them.
MNIST: dict[str, Any] = {"data": "mnist", "epochs": 5, "rate": 0.01, "measured_on": 2000}
CIFAR: dict[str, Any] = {
    "data": "cifar10",
    "epochs": 20,
    "rate": 0.01,
    "momentum": 0.9,
    "batch_size": 32,
    "measured_on": 1000,
}
# Nine and eighteen layers without batch-norm do not leave the loss of a constant at the paper's rate in minutes: from Xavier's
# weights, with momentum and batches of 32, they do.
STEEP: dict[str, Any] = {"xavier": True, "rate": 0.01, "momentum": 0.9, "batch_size": 32}
# Patches of 200 images are some 200,000 in the early layers.
_DEEP: dict[str, Any] = STEEP | {"measured_on": 200}
DEEP: dict[str, dict[str, Any]] = {"vgg11": _DEEP | {"epochs": 3}, "resnet18": _DEEP | {"epochs": 1}}
QUICK: dict[str, Any] = {
    "rate": 0.02,
    "momentum": 0.9,
    "batch_size": 32,
}  # LeNet5 on some hundreds of digits, in a second


@dataclass(frozen=True)
class TrainedModels:
    """Models with their common training data."""

    models: list[nn.Module]
    examples: Examples
    measured_on: int | None = None

    def problem(self, index: int = 0, params: str | list[str] = "*") -> Problem:
        """Mean cross-entropy of one model on (the first of) the training data, with frozen batch-norm statistics."""
        data = self.examples.first(self.measured_on)
        return Problem.of(self.models[index].eval(), "cross_entropy", (data.x, data.y), params, batch_size=1024)


def examples(setting: Setting) -> Examples:
    """Training data, centred as a whole and scaled to unit variance; labels drawn at random on request."""
    found = load(setting.data, folder=setting.data_dir, count=setting.examples)
    x = found.x
    if setting.data in ("digits", "mnist"):
        x = (x - x.mean()) / x.std()
    if setting.network != "dense":
        x = _as_images(x, 16 if setting.network == "lenet5" else 32)
    y = found.y
    if setting.random_labels:
        y = torch.randint(0, found.classes, y.shape, generator=Rng(setting.seed).child("labels").torch())
    return Examples(x, y, found.name, found.classes, found.synthetic)


def untrained(setting: Setting, count: int = 1) -> TrainedModels:
    """Models at initialisation."""
    data = examples(setting)
    models = [_network(setting, data, Rng(setting.seed).child("model", i)) for i in range(count)]
    return TrainedModels(models, data, setting.measured_on)


def only_setting(setting: Setting) -> Setting:
    """The setting alone, without what an experiment adds to it."""
    return Setting(**{name: getattr(setting, name) for name in Setting.__dataclass_fields__})


def trained(setting: Setting, count: int = 1) -> TrainedModels:
    """`count` models from different initialisations and orders of the data, by SGD.

    Where an experiment keeps what is done, so does this one every fiftieth of its epochs, and every minute.
    Small dense networks without batch-norm are trained together with stacked weights: that is faster than one after
    the other, since most of a step is overhead.
    """
    setting = only_setting(setting)
    found = untrained(setting, count)
    if count > 1 and setting.network == "dense" and setting.width <= NARROW and not setting.batch_norm:
        _train_together(setting, found)
    else:
        for i in range(count):
            _train_one(setting, found, i)
    for model in found.models:
        model.eval()
    return found


def trained_along(setting: Setting, epochs: Sequence[int]) -> list[TrainedModels]:
    """One model as it was after each of these epochs, which go up."""
    setting = only_setting(setting)
    found = untrained(setting)
    seen = _train_one(setting, found, 0, tuple(int(epoch) for epoch in epochs))
    return [_with_weights(found, weights) for weights in seen]


def _with_weights(found: TrainedModels, weights: dict[str, Tensor]) -> TrainedModels:
    model = copy.deepcopy(found.models[0])
    model.load_state_dict(weights)
    return replace(found, models=[model.eval()])


def _key(setting: Setting, data: Examples, *more: object) -> str:
    """Everything that trained weights depend on: data are told by what they are, for a stand-in has the name of the real ones.

    The same network serves several experiments, whatever they measure and wherever the data lie.
    """
    asked = replace(setting, measured_on=None, data_dir=None)
    return repr((asked, digest(data.x, data.y), data.synthetic, *more, __version__))


def _train_one(setting: Setting, found: TrainedModels, index: int, looks: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Train this model in place; its weights after the epochs `looks`."""
    model = found.models[index]
    optimizer = _sgd(setting, list(model.parameters()))
    kept = Kept(_key(setting, found.examples, index, looks), common=True)
    start, seen = 0, [copy.deepcopy(model.state_dict())] if 0 in looks else []
    if (state := kept.load()) is not None:
        start, seen = int(state["epoch"]), list(state["seen"])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for epoch in range(start, setting.epochs):
        _epoch(setting, found, index, optimizer, epoch)
        if epoch + 1 in looks:
            seen.append(copy.deepcopy(model.state_dict()))
        if _looked(setting, epoch) or kept.due:
            progress(f"{setting.network} {index + 1} on {setting.data}: epoch {epoch + 1} of {setting.epochs}")
            parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "seen": seen}
            kept.save({"epoch": epoch + 1, **parts})
    return seen


def _epoch(setting: Setting, found: TrainedModels, index: int, optimizer: torch.optim.SGD, epoch: int) -> None:
    x, y, model = found.examples.x, found.examples.y, found.models[index]
    model.train()
    descend(optimizer, _order(setting, len(x), index, epoch), partial(_loss, model, x, y))


def _sgd(setting: Setting, parameters: list[nn.Parameter] | list[Tensor]) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, setting.rate, setting.momentum, weight_decay=setting.weight_decay)


def _looked(setting: Setting, epoch: int) -> bool:
    """Every fiftieth of the epochs, and at the end."""
    return (epoch + 1) % max(1, setting.epochs // 50) == 0 or epoch + 1 == setting.epochs


def _loss(model: nn.Module, x: Tensor, y: Tensor, batch: Tensor) -> Tensor:
    return F.cross_entropy(model(x[batch]), y[batch])


def _train_together(setting: Setting, found: TrainedModels) -> None:
    x, y = found.examples.x, found.examples.y
    base = found.models[0]
    weights, buffers = stack_module_state(found.models)
    leaves = {name: w.detach().requires_grad_() for name, w in weights.items()}
    optimizer = _sgd(setting, list(leaves.values()))
    kept = Kept(_key(setting, found.examples, "together", len(found.models)))
    start = 0
    if (state := kept.load()) is not None:
        start = int(state["epoch"])
        with torch.no_grad():
            for name, leaf in leaves.items():
                leaf.copy_(state["weights"][name])
        optimizer.load_state_dict(state["optimizer"])

    def loss(w: dict[str, Tensor], b: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(base, (w, b), (inputs,)), targets)

    every = vmap(loss)
    for epoch in range(start, setting.epochs):
        orders = [_order(setting, len(x), i, epoch) for i in range(len(found.models))]
        descend(
            optimizer,
            map(torch.stack, zip(*orders, strict=True)),
            lambda index: every(leaves, buffers, x[index], y[index]).sum(),
        )
        if _looked(setting, epoch) or kept.due:
            progress(f"{len(found.models)} networks on {setting.data}: epoch {epoch + 1} of {setting.epochs}")
            weights = {name: leaf.detach() for name, leaf in leaves.items()}
            kept.save({"epoch": epoch + 1, "weights": weights, "optimizer": optimizer.state_dict()})
    _unstack(found.models, leaves)


def _order(setting: Setting, count: int, model: int, epoch: int) -> Sequence[Tensor]:
    return shuffled_batches(count, setting.batch_size, Rng(setting.seed).child("order", model, epoch))


def _unstack(models: list[nn.Module], leaves: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for i, model in enumerate(models):
            for name, parameter in model.named_parameters():
                parameter.copy_(leaves[name][i])


def _network(setting: Setting, data: Examples, rng: Rng) -> nn.Module:
    model = _torch_network(setting, data, rng)
    if setting.xavier:
        generator = rng.child("xavier").torch()
        for layer in model.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.xavier_uniform_(layer.weight, generator=generator)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
    return model


def _torch_network(setting: Setting, data: Examples, rng: Rng) -> nn.Module:
    if setting.network not in NETWORKS:
        refuse(f"network must be one of {', '.join(NETWORKS)}", f"{setting.network!r}", "Use --set network=lenet5.")
    if setting.network == "lenet5":
        shape = (data.x.shape[1], data.x.shape[2], data.x.shape[3])
        return lenet5(shape, data.classes, fc1=setting.fc1, batch_norm=setting.batch_norm, rng=rng)
    if setting.network == "vgg11":
        return vgg11(setting.width, data.classes, data.x.shape[1], rng=rng)
    if setting.network == "resnet18":
        with initialised_by(rng):
            return ResNet18(setting.width, data.classes, data.x.shape[1])
    inputs = data.x[0].numel()
    return fully_connected(setting.width, setting.depth, inputs, data.classes, batch_norm=setting.batch_norm, rng=rng)


def _as_images(x: Tensor, least: int) -> Tensor:
    """`(N, channels, height, width)`; smaller images, such as the 8 x 8 digits, are enlarged to what the network needs."""
    x = x[:, None] if x.ndim == 3 else x
    return F.interpolate(x, size=(least, least), mode="bilinear") if x.shape[-1] < least else x
