"""Figure 6: the overlap between models survives different hyper-parameters; layers of LeNet5."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...kron import model_overlap
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ._trained import Setting, trained

SOURCE = "Wu et al., Figure 6, Section F.2.1"


@dataclass(frozen=True)
class Config(Setting):
    network: str = "lenet5"
    rates: tuple[tuple[float, float], ...] = ((0.1, 0.0), (0.03, 0.0), (0.03, 0.9))  # (rate, momentum)
    each: int = 2
    k: int = 40
    layers: tuple[str, ...] = ("conv2", "fc3")


def run(config: Config) -> Outcome:
    """Every pair of models, whether trained alike or not."""
    problems, schemes = [], []
    for scheme, (rate, momentum) in enumerate(config.rates):
        setting = replace(config, rate=rate, momentum=momentum, seed=config.seed + scheme)
        found = trained(setting, config.each)
        problems += [found.problem(i) for i in range(config.each)]
        schemes += [scheme] * config.each
    data: dict[str, Any] = {}
    claims = []
    for layer in config.layers:
        overlap = model_overlap(problems, layer, k=config.k)
        data[layer] = {
            "outputs": overlap.outputs,
            "measured": overlap.measured,
            "permuted": overlap.permuted,
            "linear": overlap.linear,
        }
        across = np.array([schemes[i] != schemes[j] for i, j in overlap.pairs])
        where = min(overlap.outputs, config.k) - 1
        chance = (where + 1) / overlap.size
        value, alike = overlap.measured[across, where].mean(), overlap.measured[~across, where].mean()
        claims += [
            Claim(
                f"{layer}: models trained with different hyper-parameters overlap at k = m far beyond chance.",
                SOURCE,
                f"at least 5 times chance ({chance:.4f})",
                f"{value:.3f} (trained alike: {alike:.3f})",
                bool(value >= 5 * chance),
            ),
            Claim(
                f"{layer}: the overlap comes from a common structure, not from training alike.",
                SOURCE,
                "at least half of that between models trained alike",
                f"{value:.3f} against {alike:.3f}",
                bool(value >= 0.5 * alike),
            ),
        ]
    return Outcome("wu2022.fig6", asdict(config), data, tuple(claims))


def figures(outcome: Outcome) -> dict[str, Any]:
    """One panel per layer."""
    return {"overlap": plots.model_overlaps(outcome.data)}


EXPERIMENT = Experiment(
    name="wu2022.fig6",
    title="Overlap of models trained with different hyper-parameters",
    source="Wu et al., Figure 6",
    quick=Config(examples=600, epochs=25, k=25),
    paper=Config(
        data="cifar10",
        epochs=20,
        rates=((0.01, 0.0), (0.003, 0.0), (0.01, 0.9)),
        k=150,
        layers=("conv1", "conv2", "fc1", "fc2", "fc3"),
    ),
    run=run,
    figures=figures,
)
