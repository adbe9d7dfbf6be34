"""Networks to look at: those that are trained here, or the published ResNets of the data folder."""

from __future__ import annotations

from torch import nn

from ...curvature import Problem
from ...errors import refuse
from ...zoo.data import Examples, data_dir, load
from ...zoo.models import load_cifar_resnet
from ._fits import TrainingFit, fit_of, fit_on
from ._trained import NETWORKS, Setting, trained

PRETRAINED = ("resnet20", "resnet32")


def published(name: str, setting: Setting) -> tuple[nn.Module, Examples]:
    """ResNet-20 or -32 with its weights on CIFAR-10, and the setting's examples of it."""
    folder = data_dir(setting.data_dir)
    if name not in PRETRAINED or folder is None:
        refuse(
            "network must be one that is trained here, or resnet20 or resnet32 with a data folder",
            f"{name!r}" + (" without one" if folder is None else ""),
            f"Trained here: {', '.join(NETWORKS)}. Else name the folder with --data-dir or $HESSCOPE_DATA.",
        )
    model = load_cifar_resnet(folder, int(name.removeprefix("resnet")))
    return model.eval(), load("cifar10", folder=folder, count=setting.examples)


def problem_of(setting: Setting) -> tuple[Problem, int, TrainingFit]:
    """Of the setting's network, the number of classes, and how well it fits its data."""
    if setting.network in NETWORKS:
        models = trained(setting)
        return models.problem(), models.examples.classes, fit_of(models)
    model, found = published(setting.network, setting)
    fit = fit_on([model], found.x, found.y, found.classes)
    return Problem.of(model, "cross_entropy", (found.x, found.y), batch_size=64), found.classes, fit
