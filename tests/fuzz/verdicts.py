"""Does hs.check alarm where nothing is wrong, or miss what is? `python -m fuzz.verdicts --networks 200` in tests/.

First random piecewise-linear networks, which torch differentiates rightly everywhere but at their kinks: every alarm is
a false one. Then modules that torch may differentiate wrongly twice: whether it does is found here by differences of its
gradient, without the library. What passes must have the products that differences have (some operations the library replaces), and what
torch gets right must pass. `--cost` measures what a check takes in gradients.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hesscope as hs
from curvature.cases import WrongSquare
from hesscope.zoo.gpt import SmallGPT
from hesscope.zoo.resnets import cifar_resnet

Data = tuple[Tensor, Tensor]


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


KINKED: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU,
    lambda: nn.ReLU(inplace=True),
    lambda: nn.LeakyReLU(0.1),
    lambda: nn.PReLU(init=0.3),
    nn.ReLU6,
    nn.Hardtanh,
    lambda: nn.Threshold(0.1, 0.0),
    lambda: nn.Hardshrink(0.2),
    lambda: nn.Softshrink(0.2),
    lambda: Applied(torch.abs),
    lambda: Applied(lambda x: torch.maximum(x, x.roll(1, -1))),
    lambda: Applied(lambda x: x.clamp(-0.5, 0.8)),
    lambda: Applied(lambda x: x.sort(dim=-1).values),
)


def piecewise_linear(seed: int) -> tuple[nn.Module, Any, Data]:
    """A random network of linear maps and kinks, some with zero biases and dead inputs, a loss and data."""
    r = random.Random(seed)
    torch.manual_seed(seed)
    n, classes = r.choice([3, 17, 40]), r.choice([2, 4])
    layers: list[nn.Module] = []
    if r.random() < 0.4:
        x = torch.randn(n, 2, 6, 6)
        layers = [
            nn.Conv2d(2, 4, 3, padding=1),
            r.choice(KINKED)(),
            r.choice([nn.MaxPool2d, nn.AvgPool2d])(2),
            nn.Flatten(),
        ]
        width = 36
    else:
        width = r.choice([3, 8])
        x = torch.randn(n, width)
    for _ in range(r.choice([1, 2, 3, 5])):
        wide = r.choice([4, 16, 33])
        layers += [nn.Linear(width, wide, bias=r.random() < 0.7), r.choice(KINKED)()]
        width = wide
    model = nn.Sequential(*layers, nn.Linear(width, classes))
    if r.random() < 0.5:  # every unit of a zero input sits on its kink
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
        x[: n // 3] = 0
    if r.random() < 0.3:
        x.round_()
    if r.random() < 0.5:
        return model, "cross_entropy", (x, torch.randint(0, classes, (n,)))
    return model, r.choice(["mse", nn.L1Loss(), nn.HuberLoss(), nn.SmoothL1Loss()]), (x, torch.randn(n, classes))


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(9, 6, mode="mean")

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.bags((x.abs() * 3).long().clamp(0, 8)) * x.sum(1, keepdim=True)
        return found


def suspects() -> dict[str, nn.Module]:
    """What torch differentiates twice, rightly or not, in the middle of a network from 6 to 6."""
    linear = lambda: nn.Linear(6, 6)  # noqa: E731
    grid = torch.rand(1, 6, 1, 2) - 0.5
    return {
        "weight_norm, old": nn.utils.weight_norm(linear()),
        "weight_norm, old, over all": nn.utils.weight_norm(linear(), dim=None),
        "weight_norm, old, columns": nn.utils.weight_norm(linear(), dim=1),
        "weight_norm, new": nn.utils.parametrizations.weight_norm(linear()),
        "spectral_norm, new": nn.utils.parametrizations.spectral_norm(linear()),
        "orthogonal": nn.utils.parametrizations.orthogonal(linear()),
        "custom function that forgets": Applied(WrongSquare.apply),
        "embedding bag": Bags(),
        "layer norm": nn.LayerNorm(6),
        "group norm": Applied(lambda x: F.group_norm(x, 2)),
        "batch norm": nn.BatchNorm1d(6),
        "LSTM": Applied(_lstm()),
        "cdist": Applied(lambda x: torch.cdist(x[:, None], x.roll(1, 1)[:, None] + 1).flatten(1) * x),
        "bilinear": Applied(lambda x: F.interpolate(x[:, None], 6, mode="linear")[:, 0].sin()),
        "grid sample": Applied(lambda x: F.grid_sample(x.view(-1, 1, 2, 3), grid.expand(len(x), 6, 1, 2).to(x), align_corners=True).flatten(1).tanh()),
        "softmax": nn.Softmax(-1),
        "attention": Applied(lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0] + x.sin()),
        "cumprod": Applied(lambda x: (x / 2).cumprod(-1)),
        "renorm": Applied(lambda x: x.renorm(2, 0, 1.0)),
        "logcumsumexp": Applied(lambda x: x.logcumsumexp(-1)),
        "in place on a view": Applied(_in_place),
    }  # fmt: skip


def _lstm() -> Callable[[Tensor], Tensor]:
    cell = nn.LSTM(2, 2, batch_first=True).double().requires_grad_(False)
    return lambda x: cell(x.view(-1, 3, 2).double())[0].flatten(1).to(x)


def _in_place(x: Tensor) -> Tensor:
    y = x * 1.0
    y[:, 1:].mul_(x[:, :1].sin())
    return y


def suspect(middle: nn.Module) -> tuple[nn.Module, str, Data]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), middle, nn.Tanh(), nn.Linear(6, 3)).double()
    return model, "mse", (torch.randn(9, 6).double(), torch.randn(9, 3).double())


def torch_and_truth(model: nn.Module, data: Data, v: Tensor) -> tuple[Tensor | None, Tensor]:
    """A Hessian product by double backward (None where torch has none), and by differences of the gradient."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    pieces = [piece.view_as(p) for piece, p in zip(v.split([p.numel() for p in parameters]), parameters, strict=True)]

    def gradient(create_graph: bool = False) -> tuple[Tensor, ...]:
        loss = F.mse_loss(model(data[0]), data[1])
        return torch.autograd.grad(loss, parameters, create_graph=create_graph)

    try:
        product = torch.cat([p.flatten() for p in torch.autograd.grad(gradient(True), parameters, pieces)])
    except RuntimeError:
        product = None
    ends = []
    for step in (1e-6, -1e-6):
        with torch.no_grad():
            torch._foreach_add_(parameters, pieces, alpha=step)
        ends.append(torch.cat([g.flatten() for g in gradient()]))
        with torch.no_grad():
            torch._foreach_add_(parameters, pieces, alpha=-step)
    return product, (ends[0] - ends[1]) / 2e-6


def same(found: Tensor, truth: Tensor) -> bool:
    return bool((found - truth).norm() <= 1e-4 * truth.norm())


def alarms(networks: int) -> list[int]:
    """The seeds of right networks that the check fails."""
    found = []
    for seed in range(networks):
        model, loss, data = piecewise_linear(seed)
        if not hs.check(hs.Problem.of(model, loss, data)).passed:
            found.append(seed)
    return found


def misses() -> tuple[list[str], list[str], list[str]]:
    """The suspects that torch gets wrong; those that pass with wrong products; those that fail though torch is right."""
    wrong, missed, alarmed = [], [], []
    for name, middle in suspects().items():
        model, loss, data = suspect(middle)
        model.eval()
        problem = hs.Problem.of(model, loss, data)
        torch.manual_seed(1)
        v = torch.randn(problem.space.size, dtype=torch.float64)
        torchs, truth = torch_and_truth(model, data, v)
        right = torchs is not None and same(torchs, truth)
        if not right:
            wrong.append(name)
        if not hs.check(problem).passed:
            alarmed += [name] * right
        elif not same(hs.Hessian(problem) @ v, truth):
            missed.append(name)
    return wrong, missed, alarmed


def costs() -> dict[str, float]:
    """Processor time of a check in gradients of all the data, by the better of three gradients."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 2000, (32, 65))
    gpt = SmallGPT(vocabulary=2000, width=256, heads=4, layers=5, length=64)
    images = torch.randn(128, 3, 32, 32)
    found = {}
    for name, model, data in (
        (f"GPT of {sum(p.numel() for p in gpt.parameters()) / 1e6:.1f} M", gpt, (tokens[:, :-1], tokens[:, 1:])),
        ("ResNet-20", cifar_resnet(20), (images, torch.arange(128) % 10)),
    ):
        problem = hs.Problem.of(model, "cross_entropy", data)
        times = []
        for _ in range(3):
            start = time.process_time()
            for batch in problem.batches:
                problem.batch_gradient(batch, problem.leaves(), create_graph=False)
            times.append(time.process_time() - start)
        start = time.process_time()
        assert hs.check(problem).passed
        found[name] = (time.process_time() - start) / min(times)
    return found


def main() -> int:
    """Run, print, and fail where a verdict was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--cost", action="store_true", help="measure what a check costs instead")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    if settings.cost:
        for name, gradients in costs().items():
            print(f"{name}: a check takes {gradients:.1f} gradients of the data")
        return 0
    wrong, missed, alarmed = misses()
    print(f"{len(suspects())} suspects, torch is wrong about {len(wrong)}: {', '.join(wrong)}")
    print(f"missed: {missed or 'none'}; alarms about right ones: {alarmed or 'none'}")
    false = alarms(settings.networks)
    print(f"{settings.networks} piecewise-linear networks: {len(false)} false alarms {false or ''}")
    return int(bool(missed or alarmed or false))


if __name__ == "__main__":
    raise SystemExit(main())
