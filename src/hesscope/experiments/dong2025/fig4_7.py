"""Figures 4-7: the four cases, linear and one hidden layer under MSE and CE, as the number of classes grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.blocks import draw_heat
from ...plots.style import CYCLE, THEORY, new_figure
from ...results.claims import Claim, Experiment, Outcome
from ...rmt import block_limits
from ...rng import Rng
from ...structure import block_norms, heat_map
from ._measured import Loss, below, claim, gaussian_data, mean_squares, network, outcome, problem_of

CASES: tuple[tuple[str, bool, Loss], ...] = (
    ("linear, MSE", False, "MSE"),
    ("linear, CE", False, "CE"),
    ("one hidden layer, MSE", True, "MSE"),
    ("one hidden layer, CE", True, "CE"),
)


@dataclass(frozen=True)
class Config:
    """The paper has one example per class (N = C), so that d / N changes with C."""

    inputs: int = 32
    hidden: int = 8
    classes: tuple[int, ...] = (4, 16, 64)
    repeats: int = 8
    pixels: int = 128
    seed: int = 0


def run(config: Config) -> Outcome:
    """RMS ratios of block norms over several networks; pictures of the first."""
    data: dict[str, Any] = {"classes": np.array(config.classes)}
    for name, hidden, loss in CASES:
        widths = (config.inputs, config.hidden) if hidden else (config.inputs,)
        ratios = np.zeros((2, len(config.classes)))
        pictures = {}
        for k, classes in enumerate(config.classes):
            squares = np.zeros((2, 2))  # first and last layer, diagonal and off-diagonal
            for repeat in range(config.repeats):
                rng = Rng(config.seed).child("fig4_7", classes, repeat)
                x, y = gaussian_data(1, classes, config.inputs, rng)
                problem = problem_of(network((*widths, classes), rng), loss, x, y, classes)
                if repeat == 0:
                    picture = heat_map(problem, config.pixels, reduce="mean")
                    pictures[str(classes)] = {"image": picture.image, "bounds": picture.bounds}
                for row, glob in enumerate(("fc1.weight", f"fc{len(widths)}.weight")):
                    squares[row] += mean_squares(block_norms(problem.select(glob)).norms)
            ratios[:, k] = np.sqrt(squares[:, 1] / squares[:, 0])
        data[name] = {"ratios": ratios, "pictures": pictures}
    return outcome("fig4_7", config, data, _claims(config, data))


def _claims(config: Config, data: dict[str, Any]) -> list[Claim]:
    linear, mse, ce = (data[name]["ratios"] for name in (CASES[1][0], CASES[2][0], CASES[3][0]))
    exact = max(float(data[CASES[0][0]]["ratios"].max()), float(mse[1].max()))
    claims = [below("Linear MSE, and H_vv under MSE: strictly block-diagonal at every C", "Figures 4, 6", exact, 0.0)]
    for label, figure, ratios, rate in (
        ("Linear, CE", "Figure 5", linear[1], 1.0),
        ("H_ww, MSE", "Figure 6", mse[0], 0.5),
        ("H_ww, CE", "Figure 7", ce[0], 0.5),
        ("H_vv, CE", "Figure 7", ce[1], 1.0),
    ):
        # Over this range of C the ratio must fall at least half as fast as the asymptotic rate C^-1 or C^-1/2.
        least = (config.classes[-1] / config.classes[0]) ** (rate / 2)
        falls = bool((np.diff(ratios) < 0).all()) and ratios[0] / ratios[-1] >= least
        claims.append(
            claim(
                f"{label}: blocks become clearer as C grows (ratio falls from the first to the last C, monotonically)",
                figure,
                f"by a factor >= {least:.2g}",
                f"{ratios[0]:.3g} to {ratios[-1]:.3g}",
                falls,
            )
        )
    last = config.classes[-1]
    limit = block_limits.linear_cross_entropy(config.inputs / last, last)
    predicted = float(np.sqrt(limit.off_diagonal[0] / limit.diagonal[0]))
    claims.append(
        below(
            f"Linear, CE: the ratio at the largest C agrees with the limit (d, N -> infinity) although d is only "
            f"{config.inputs} (relative gap)",
            "Theorem 1",
            abs(float(linear[1, -1]) / predicted - 1),
            0.15,
        )
    )
    return claims


def figures(result: Outcome) -> dict[str, Any]:
    """Each case's pictures over C, and the ratios with the rates of the theorems."""
    out: dict[str, Any] = {}
    classes = result.data["classes"]
    for (name, _, _), key in zip(CASES, ("fig4", "fig5", "fig6", "fig7"), strict=True):
        figure, axes = new_figure(1, len(classes), width=3.0, height=3.2)
        for axis, count in zip(np.atleast_1d(axes), classes, strict=True):
            picture = result.data[name]["pictures"][str(count)]
            draw_heat(
                axis, picture["image"], picture["bounds"], f"C = {count}", ("w", "v")[2 - len(picture["bounds"]) :]
            )
        figure.suptitle(f"|H| at initialisation: {name} (√ scale)", fontsize=11)
        out[key] = figure
    figure, axis = new_figure(width=5.6, height=4.0)
    shown = ((CASES[1][0], 1, "linear, CE"), (CASES[2][0], 0, "H_ww, MSE"), (CASES[3][0], 0, "H_ww, CE"))
    for (name, row, label), ink in zip((*shown, (CASES[3][0], 1, "H_vv, CE")), CYCLE[:1] + CYCLE[2:], strict=False):
        axis.loglog(classes, result.data[name]["ratios"][row], "o-", color=ink, label=label)
    inputs = result.config["inputs"]
    limits = [block_limits.linear_cross_entropy(inputs / int(c), int(c)) for c in classes]
    theory = [np.sqrt(limit.off_diagonal[0] / limit.diagonal[0]) for limit in limits]
    axis.loglog(classes, theory, "--", color=THEORY, label="linear, CE: limit")
    axis.set(xlabel="number of classes C (N = C examples)", ylabel="off-diagonal / diagonal norm (RMS)")
    axis.set_xticks(classes, [str(c) for c in classes], minor=False)
    axis.set_xticks([], minor=True)
    axis.legend(fontsize=8)
    out["rates"] = figure
    return out


EXPERIMENT = Experiment(
    name="dong2025.fig4_7",
    title="Four cases as the number of classes grows",
    source="Dong et al. 2025, Figures 4-7",
    quick=Config(),
    paper=Config(64, 8, (10, 100, 500), 3, 256),
    run=run,
    figures=figures,
)
