"""Beyond the paper: which width drives the block structure of each layer of a four-layer network?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...plots.style import ACCENT, SEQUENTIAL, new_figure
from ...results.claims import Claim, Experiment, Outcome
from ...rng import Rng
from ...structure import block_norms
from ._measured import below, claim, mean_squares, network, outcome, problem_of

WIDTHS = ("d", "h1", "h2", "h3", "C")
LAYERS = ("fc1", "fc2", "fc3", "fc4")


@dataclass(frozen=True)
class Config:
    """One width at a time goes from `low` to `high`, the others stay at `base`."""

    base: int = 16
    low: int = 8
    high: int = 64
    examples: int = 96
    repeats: int = 3
    seed: int = 0


def run(config: Config) -> Outcome:
    """Elasticities d log ratio / d log width of every layer in every width, and in all widths downstream of it."""
    alone = np.array([_elasticity(config, (k,)) for k in range(5)])  # (width, layer)
    # Layer p maps width p to width p + 1, and its neurons feed the widths from p + 2 on.
    downstream = np.array([_elasticity(config, tuple(range(p + 2, 5)))[p] for p in range(3)])
    upstream = np.array([_elasticity(config, tuple(range(p + 2)))[p] for p in range(3)])
    data = {"alone": alone, "downstream": downstream, "upstream": upstream}
    return outcome("deep", config, data, _claims(data))


def _elasticity(config: Config, moving: tuple[int, ...]) -> Any:
    low, high = (
        _ratios(config, [size if k in moving else config.base for k in range(5)]) for size in (config.low, config.high)
    )
    return np.log(high / low) / np.log(config.high / config.low)


def _ratios(config: Config, widths: list[int]) -> Any:
    """RMS off-diagonal over RMS diagonal block norm of each layer at initialisation under CE."""
    squares = np.zeros((2, 4))
    for repeat in range(config.repeats):
        rng = Rng(config.seed).child("deep", repeat, *widths)
        x = torch.randn(config.examples, widths[0], generator=rng.child("inputs").torch())
        y = torch.randint(0, widths[-1], (config.examples,), generator=rng.child("labels").torch())
        problem = problem_of(network(tuple(widths), rng), "CE", x, y, widths[-1])
        for k, layer in enumerate(LAYERS):
            squares[:, k] += mean_squares(block_norms(problem.select(f"{layer}.weight")).norms)
    return np.sqrt(squares[1] / squares[0])


def _claims(data: dict[str, Any]) -> list[Claim]:
    alone, downstream, upstream = data["alone"], data["downstream"], data["upstream"]
    strongest = [WIDTHS[int(np.argmin(alone[:, p]))] for p in range(4)]
    return [
        claim(
            "Output layer: its own number of outputs C drives the ratio, with exponent -1",
            "Appendix H",
            "-1 ± 0.15",
            f"{alone[4, 3]:.2f}",
            abs(alone[4, 3] + 1) <= 0.15,
        ),
        claim(
            "Last hidden layer: the width it feeds into, C, drives the ratio (exponent near -1/2), not its own width",
            "Appendix H",
            "C; -0.5 ± 0.2",
            f"{strongest[2]}; {alone[4, 2]:.2f}",
            strongest[2] == "C" and abs(alone[4, 2] + 0.5) <= 0.2,
        ),
        claim(
            "The conjecture, corrected: for a hidden layer 'fan-out' is not the layer's own number of neurons but all "
            "widths downstream of it; when these grow together every hidden layer's ratio falls with exponent near -1/2",
            "Appendix H",
            "each -0.5 ± 0.2",
            ", ".join(f"{value:.2f}" for value in downstream),
            bool((np.abs(downstream + 0.5) <= 0.2).all()),
        ),
        below(
            "No hidden layer becomes more block-diagonal with its own or earlier widths (largest fall as an exponent)",
            "Appendix H",
            float((-upstream).max()),
            0.25,
        ),
        claim(
            "One wide layer is not enough: each later layer is a bottleneck, so a single downstream width acts on fc1 "
            "less than all of them together",
            "Appendix H",
            f"> {downstream[0]:.2f}",
            f"{alone[2:, 0].min():.2f}",
            bool(alone[2:, 0].min() > downstream[0] + 0.1),
        ),
    ]


def figures(result: Outcome) -> dict[str, Any]:
    """The table of elasticities as a picture, and the joint ones as bars."""
    figure, (left, right) = new_figure(1, 2, width=5.0, height=3.6)
    table = result.data["alone"].T
    left.grid(False)
    drawn = left.imshow(-table, cmap=SEQUENTIAL, vmin=-0.2, vmax=1.0)
    for row in range(4):
        for column in range(5):
            ink = "black" if -table[row, column] > 0.6 else "white"
            left.text(column, row, f"{table[row, column]:.2f}", ha="center", va="center", color=ink, fontsize=9)
    left.set_xticks(range(5), WIDTHS)
    left.set_yticks(range(4), LAYERS)
    left.set(xlabel="the one width that grows", ylabel="layer", title="one width grows: d log ratio / d log width")
    figure.colorbar(drawn, ax=left, shrink=0.8).set_label("how fast the ratio falls")
    places = np.arange(3)
    right.bar(places - 0.2, result.data["downstream"], 0.4, label="all downstream widths grow")
    right.bar(places + 0.2, result.data["upstream"], 0.4, label="own and earlier widths grow")
    right.axhline(-0.5, color=ACCENT, linestyle="--", label="-1/2")
    right.axhline(0, color="black", linewidth=0.8)
    right.set_xticks(places, LAYERS[:3])
    right.set(ylabel="d log ratio / d log width", title="several widths grow together", ylim=(-0.75, 0.45))
    right.legend(fontsize=8, loc="upper right")
    return {"deep": figure}


EXPERIMENT = Experiment(
    name="dong2025.deep",
    title="Which width drives the blocks of each layer?",
    source="Dong et al. 2025, Appendix H (conjecture)",
    quick=Config(),
    paper=Config(32, 16, 128, 512, 8),
    run=run,
    figures=figures,
)
