"""Tables 6, 7, 8 and 9 as printed, and the networks of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...errors import refuse

R = TypeVar("R")


@dataclass(frozen=True)
class InputRow:
    """Mean, smallest and largest (v₁ᵀÊ[x])² and λ₁/λ₂ of one network on one data set."""

    table: int
    data: str  # as in `zoo.load`
    name: str
    network: str
    width: int
    depth: int
    alignment: tuple[float, float, float]
    ratio: tuple[float, float, float]
    batch_norm: bool = False

    @property
    def id(self) -> str:
        kind = {6: "fc", 7: "conv", 9: "fc"}[self.table]
        return f"{self.data}-{self.name}-{kind}"

    @property
    def shown(self) -> str:
        """As a figure names it, for example "F-200² on MNIST"."""
        base, _, power = self.name.partition("^")
        name = base + power[:1].translate(str.maketrans("2348", "²³⁴⁸")) + power[1:]
        data = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}[self.data]
        return f"{name} on {data}" + (", convolutions" if self.table == 7 else "")


def _row(
    table: int, data: str, name: str, network: str, size: tuple[int, int], numbers: tuple[float, ...], bn: bool = False
) -> InputRow:
    low, high = numbers[:3], numbers[3:]
    return InputRow(
        table, data, name, network, *size, (low[0], low[1], low[2]), (high[0], high[1], high[2]), batch_norm=bn
    )


# The paper prints VGG11-W64 on CIFAR-10 twice, with different numbers; the second is kept apart as W64 (2).
TABLE_6 = (
    _row(6, "mnist", "F-200^2", "dense", (200, 2), (1.000, 1.000, 1.000, 12.29, 9.65, 16.16)),
    _row(6, "mnist", "F-600^2", "dense", (600, 2), (0.999, 0.999, 0.999, 12.00, 11.42, 13.00)),
    _row(6, "mnist", "F-600^4", "dense", (600, 4), (1.000, 0.999, 1.000, 17.81, 7.33, 28.00)),
    _row(6, "mnist", "F-600^8", "dense", (600, 8), (0.991, 0.965, 1.000, 6.63, 2.28, 11.15)),
    _row(6, "cifar10", "F-600^2", "dense", (600, 2), (0.999, 0.998, 1.000, 9.24, 4.74, 13.74)),
    _row(6, "cifar10", "F-1500^3", "dense", (1500, 3), (0.999, 0.997, 1.000, 13.27, 6.10, 18.41)),
    _row(6, "cifar10", "LeNet5", "lenet5", (120, 0), (0.998, 0.997, 0.999, 7.21, 5.88, 9.02)),
    _row(6, "cifar10", "LeNet5-(fc1-80)", "lenet5", (80, 0), (0.998, 0.996, 0.999, 7.80, 6.77, 11.01)),
    _row(6, "cifar10", "LeNet5-(fc1-100)", "lenet5", (100, 0), (0.997, 0.995, 0.999, 7.42, 6.20, 9.10)),
    _row(6, "cifar10", "LeNet5-(fc1-150)", "lenet5", (150, 0), (0.998, 0.992, 0.999, 7.35, 5.34, 9.62)),
    _row(6, "cifar10", "VGG11-W32", "vgg11", (32, 0), (0.990, 0.988, 0.993, 6.02, 5.57, 6.51)),
    _row(6, "cifar10", "VGG11-W64", "vgg11", (64, 0), (0.996, 0.993, 0.999, 5.87, 5.32, 6.26)),
    _row(6, "cifar10", "VGG11-W64 (2)", "vgg11", (64, 0), (0.995, 0.993, 0.996, 6.24, 5.97, 6.70)),
    _row(6, "cifar100", "VGG11-W48", "vgg11", (48, 0), (0.999, 0.999, 0.999, 17.861, 15.456, 20.491)),
    _row(6, "cifar100", "VGG11-W64", "vgg11", (64, 0), (0.999, 0.999, 1.000, 19.185, 18.358, 20.410)),
    _row(6, "cifar100", "VGG11-W80", "vgg11", (80, 0), (0.999, 0.999, 1.000, 19.455, 18.120, 21.450)),
    _row(6, "cifar100", "ResNet18-W48", "resnet18", (48, 0), (1.000, 1.000, 1.000, 28.23, 27.37, 29.27)),
    _row(6, "cifar100", "ResNet18-W64", "resnet18", (64, 0), (1.000, 1.000, 1.000, 27.07, 25.72, 29.50)),
    _row(6, "cifar100", "ResNet18-W80", "resnet18", (80, 0), (1.000, 1.000, 1.000, 28.23, 25.98, 30.03)),
)
TABLE_7 = (
    _row(7, "cifar10", "LeNet5", "lenet5", (120, 0), (0.999, 0.998, 0.999, 15.87, 11.15, 27.20)),
    _row(7, "cifar10", "LeNet5-(fc1-80)", "lenet5", (80, 0), (0.998, 0.998, 0.999, 12.36, 9.53, 13.36)),
    _row(7, "cifar10", "LeNet5-(fc1-100)", "lenet5", (100, 0), (0.999, 0.999, 0.999, 19.49, 16.69, 21.92)),
    _row(7, "cifar10", "LeNet5-(fc1-150)", "lenet5", (150, 0), (0.999, 0.998, 0.999, 12.86, 7.65, 16.34)),
    _row(7, "cifar10", "VGG11-W32", "vgg11", (32, 0), (0.995, 0.991, 0.999, 5.31, 2.39, 9.09)),
    _row(7, "cifar10", "VGG11-W64", "vgg11", (64, 0), (0.997, 0.993, 1.000, 5.76, 2.50, 9.98)),
    _row(7, "cifar10", "VGG11-W64 (2)", "vgg11", (64, 0), (0.998, 0.995, 1.000, 5.81, 2.53, 10.62)),
    _row(7, "cifar100", "VGG11-W48", "vgg11", (48, 0), (0.996, 0.991, 0.999, 5.72, 2.46, 9.90)),
    _row(7, "cifar100", "VGG11-W64", "vgg11", (64, 0), (0.995, 0.991, 0.999, 5.66, 2.50, 10.79)),
    _row(7, "cifar100", "VGG11-W80", "vgg11", (80, 0), (0.994, 0.988, 0.998, 5.18, 2.50, 8.45)),
    _row(7, "cifar100", "ResNet18-W48", "resnet18", (48, 0), (0.981, 0.917, 0.998, 3.79, 1.89, 7.56)),
    _row(7, "cifar100", "ResNet18-W64", "resnet18", (64, 0), (0.985, 0.910, 0.998, 3.96, 1.81, 7.53)),
    _row(7, "cifar100", "ResNet18-W80", "resnet18", (80, 0), (0.987, 0.954, 0.997, 4.16, 2.11, 7.04)),
)
TABLE_9 = (
    _row(9, "mnist", "F-200^2-BN", "dense", (200, 2), (0.062, 0.001, 0.260, 1.16, 1.04, 1.30), True),
    _row(9, "mnist", "F-600^2-BN", "dense", (600, 2), (0.026, 0.000, 0.063, 1.13, 1.02, 1.26), True),
    _row(9, "mnist", "F-600^4-BN", "dense", (600, 4), (0.027, 0.000, 0.146, 1.11, 1.03, 1.19), True),
    _row(9, "cifar10", "LeNet5-BN", "lenet5", (120, 0), (0.210, 0.001, 0.803, 1.54, 1.20, 1.89), True),
)
TABLE_8 = {  # data set, network: fc1, fc2, fc3
    ("mnist", "F"): (0.602, 0.967, 0.982),
    ("mnist", "LeNet5"): (0.890, 0.931, 0.999),
    ("mnist-R", "F"): (0.235, 0.801, 0.998),
    ("mnist-R", "LeNet5"): (0.518, 0.912, 0.999),
    ("cifar10", "F"): (0.880, 0.943, 0.993),
    ("cifar10", "LeNet5"): (0.951, 0.972, 0.999),
    ("cifar10-R", "F"): (0.903, 0.931, 0.996),
    ("cifar10-R", "LeNet5"): (0.213, 0.701, 0.999),
}


def known_rows(names: Sequence[str], known: dict[str, R], where: str) -> dict[str, R]:
    """The known rows by name; refuses names that are not among them."""
    unknown = [name for name in names if name not in known]
    if unknown:
        refuse(f"rows must be of {where}", f"{unknown}", f"There are: {', '.join(known)}.")
    return known
