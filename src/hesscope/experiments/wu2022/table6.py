"""Tables 6 and 7: E[x xᵀ] of hidden layers is close to rank one, along E[x]."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...results.claims import Claim, Experiment, Outcome
from ._inputs import draw, measure, span
from ._trained import Setting

SOURCE = "Wu et al., Tables 6 and 7"


@dataclass(frozen=True)
class Config:
    data: str = "mnist"
    images: str = "cifar10"
    examples: int | None = None
    width: int = 200
    depths: tuple[int, ...] = (2, 4)
    epochs: int = 5
    lenet_epochs: int = 10
    rate: float = 0.01  # the paper's; λ₁/λ₂ depends on it
    lenet_rate: float = 0.05
    runs: int = 3
    data_dir: str | None = None


def run(config: Config) -> Outcome:
    """Fully connected layers but the first, and the layers of LeNet5 behind conv1."""
    base: dict[str, Any] = {"examples": config.examples, "data_dir": config.data_dir}
    settings = {
        f"F-{config.width}^{depth}": Setting(
            data=config.data, width=config.width, depth=depth, epochs=config.epochs, rate=config.rate, **base
        )
        for depth in config.depths
    }
    layers = {f"F-{config.width}^{depth}": tuple(f"fc{i}" for i in range(2, depth + 2)) for depth in config.depths}
    lenet = Setting(data=config.images, network="lenet5", epochs=config.lenet_epochs, rate=config.lenet_rate, **base)
    settings |= {"LeNet5 fc": lenet, "LeNet5 conv2": lenet}
    layers |= {"LeNet5 fc": ("fc1", "fc2", "fc3"), "LeNet5 conv2": ("conv2",)}
    data = measure(settings, config.runs, layers)
    return Outcome("wu2022.table6", asdict(config), data, tuple(_claims(data)))


def _claims(data: dict[str, Any]) -> list[Claim]:
    claims = []
    for name, found in data.items():
        alignment, ratio = found["alignment"], found["ratio"]
        claims.append(
            Claim(
                f"{name}: the top eigenvector of E[x xᵀ] is the mean direction.",
                SOURCE,
                "mean of (v₁ᵀÊ[x])² >= 0.99",
                span(alignment),
                bool(alignment.mean() >= 0.99),
            )
        )
        claims.append(
            Claim(
                f"{name}: λ₁/λ₂ lies in the range of the paper's tables (1.8 to 30).",
                SOURCE,
                "1.8 <= λ₁/λ₂ <= 30",
                span(ratio),
                bool(ratio.min() >= 1.8 and ratio.max() <= 30),
            )
        )
    dense = [found for found in data.values() if not np.isnan(found["bound"]).any()]
    slack = min(float((found["ratio"] / found["bound"]).min()) for found in dense)
    claims.append(
        Claim(
            "(264) strengthened: λ₁/λ₂ >= |E x|²/‖Σ‖, without its -1, in every layer.",
            "Wu et al., (264), corrected",
            "quotient >= 1",
            f"smallest {slack:.3f}",
            slack >= 1 - 1e-9,
        )
    )
    return claims


EXPERIMENT = Experiment(
    name="wu2022.table6",
    title="Inputs of hidden layers are close to their mean direction",
    source="Wu et al., Tables 6 and 7",
    quick=Config(
        data="digits",
        images="digits",
        width=48,
        depths=(2,),
        epochs=20,
        lenet_epochs=8,
        rate=0.1,
        lenet_rate=0.1,
        runs=2,
    ),
    paper=Config(),
    run=run,
    figures=draw,
)
