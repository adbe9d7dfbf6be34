"""Beyond the paper: which width drives the block structure of each layer of a four-layer network?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats

from ...plots.style import ACCENT, SEQUENTIAL, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import PrintedEstimate, less, more, standard_errors
from ..recipe import Findings, experiment
from ._measured import SOURCE, layer_squares, network, problem_of

WIDTHS = ("d", "h1", "h2", "h3", "C")
LAYERS = ("fc1", "fc2", "fc3", "fc4")
HERE = f"{SOURCE}, Appendix H"
CLAIMS = (
    *(
        less(f"own-{layer}", HERE, f"{layer}: the layer's own number of output neurons drives its structure (d log ratio / d log "
             "width)", -0.25, "“the number of output neurons in each layer”: at least half of the rate C^-1/2 of Theorem 2", basis="convention")
        for layer in LAYERS[:3]
    ),
    standard_errors("output", HERE, "Output layer: the exponent of its own number of outputs is -1", printed=-1.0),
    *(
        standard_errors(f"downstream-{layer}", HERE, f"{layer}: when all widths downstream of a hidden layer grow, the exponent is "
                        "-1/2, that of Theorem 2", printed=-0.5, corrected=True)
        for layer in LAYERS[:3]
    ),
    *(
        more(f"upstream-{layer}", HERE, f"{layer}: its own and earlier widths do less than those downstream (difference of the "
             "exponents)", 0, "“output neurons”, not inputs", corrected=True)
        for layer in LAYERS[:3]
    ),
    more("bottleneck", HERE, "One wide layer is not enough: a single downstream width acts on fc1 less than all of them together "
         "(difference of the exponents)", 0, "each later layer is a bottleneck", corrected=True),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """One width at a time goes from `low` to `high`, the others stay at `base`."""

    base: int = 16
    low: int = 8
    high: int = 64
    examples: int = 96
    repeats: int = 4
    seed: int = 0


def run(config: Config) -> Findings:
    """Elasticities d log ratio / d log width of every layer in every width, and in all widths downstream of it."""
    every = np.array([_elasticities(config, (k,)) for k in range(5)])  # (width, repeat, layer)
    # Layer p maps width p to width p + 1, and its neurons feed the widths from p + 2 on.
    down = np.array([_elasticities(config, tuple(range(p + 2, 5)), [p])[:, 0] for p in range(3)])  # (layer, repeat)
    up = np.array([_elasticities(config, tuple(range(p + 2)), [p])[:, 0] for p in range(3)])
    alone, downstream, upstream = every.mean(1), down.mean(1), up.mean(1)
    measured: dict[str, Any] = {
        "output": _beside(every[4, :, 3], -1.0),
        "bottleneck": float(alone[2:, 0].min() - downstream[0]),
    }
    for p, layer in enumerate(LAYERS[:3]):
        measured[f"own-{layer}"] = float(alone[p + 1, p])
        measured[f"downstream-{layer}"] = _beside(down[p], -0.5)
        measured[f"upstream-{layer}"] = float(upstream[p] - downstream[p])
    data = {"alone": alone, "downstream": downstream, "upstream": upstream}
    data |= {"downstream_error": _errors(down), "upstream_error": _errors(up)}
    return data, measured


def _beside(values: Any, expected: float) -> PrintedEstimate:
    """The exponent; standard errors count as the normal deviate of the same probability under Student's law."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    score = stats.norm.isf(max(stats.t.sf(abs(values.mean() - expected) / error, len(values) - 1), 1e-300))
    return PrintedEstimate(float(values.mean()), float(score), f"{values.mean():.3f} ± {error:.3f}")


def _errors(values: Any) -> Any:
    return values.std(1, ddof=1) / np.sqrt(values.shape[1])


def _elasticities(config: Config, moving: tuple[int, ...], layers: Sequence[int] = range(4)) -> Any:
    """Of every repeat and of these layers."""
    low, high = (
        np.array(
            [
                _ratios(config, [size if k in moving else config.base for k in range(5)], layers, r)
                for r in range(config.repeats)
            ]
        )
        for size in (config.low, config.high)
    )
    return np.log(high / low) / np.log(config.high / config.low)


def _ratios(config: Config, widths: list[int], layers: Sequence[int], repeat: int) -> Any:
    """RMS off-diagonal over RMS diagonal block norm of each of these layers at initialisation under CE."""
    rng = Rng(config.seed).child("deep", repeat, *widths)
    x = torch.randn(config.examples, widths[0], generator=rng.child("inputs").torch())
    y = torch.randint(0, widths[-1], (config.examples,), generator=rng.child("labels").torch())
    problem = problem_of(network(tuple(widths), rng), "CE", x, y, widths[-1])
    squares = layer_squares(problem.select([f"{LAYERS[p]}.weight" for p in layers]), [LAYERS[p] for p in layers]).T
    return np.sqrt(squares[1] / squares[0])


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
    for shift, name, label in (
        (-0.2, "downstream", "all downstream widths grow"),
        (0.2, "upstream", "own and earlier widths grow"),
    ):
        error = 2 * result.data[f"{name}_error"]
        right.bar(
            places + shift, result.data[name], 0.4, yerr=error, ecolor="black", capsize=3, label=f"{label}, ± 2 s.e."
        )
    right.axhline(-0.5, color=ACCENT, linestyle="--", label="-1/2")
    right.axhline(0, color="black", linewidth=0.8)
    right.set_xticks(places, LAYERS[:3])
    right.set(ylabel="d log ratio / d log width", title="several widths grow together", ylim=(-0.75, 0.45))
    right.legend(fontsize=8, loc="upper right")
    return {"deep": figure}


EXPERIMENT = experiment(
    __name__,
    "Which width drives the blocks of each layer?",
    "Dong et al. 2025, Appendix H (conjecture)",
    quick=Config(base=12, low=6, high=36, examples=48, repeats=3),
    default=Config(repeats=10),
    paper=Config(32, 16, 128, 512, 8),
    chosen="everything: the paper conjectures, it does not measure.",
)
