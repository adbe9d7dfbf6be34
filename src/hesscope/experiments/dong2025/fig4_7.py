"""Figures 4-7: the four cases, linear and one hidden layer under MSE and CE, as the number of classes grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...curvature import Hessian, Problem
from ...plots.style import CYCLE, new_figure
from ...results.claims import Outcome
from ...rmt import block_limits
from ...rng import Rng
from ...structure import heat_map
from ..declared import Measured, at_most, less, standard_errors
from ..recipe import Findings, experiment
from ._measured import SOURCE, Loss, draw_map, gaussian_data, layer_squares, map_bar, network, problem_of

CASES: tuple[tuple[str, bool, Loss], ...] = (
    ("linear, MSE", False, "MSE"),
    ("linear, CE", False, "CE"),
    ("one hidden layer, MSE", True, "MSE"),
    ("one hidden layer, CE", True, "CE"),
)
# What falls with C: (key, name, figure, case, first or last layer).
PARTS = (
    ("linear", "linear, CE", "Figure 5", CASES[1][0], 1),
    ("hidden-mse", "H_ww, MSE", "Figure 6", CASES[2][0], 0),
    ("hidden-ce", "H_ww, CE", "Figure 7", CASES[3][0], 0),
    ("output-ce", "H_vv, CE", "Figure 7", CASES[3][0], 1),
)
CLAIMS = (
    at_most("strict", f"{SOURCE}, Figure 4", "Linear, MSE: strictly block-diagonal at every C (H times vectors of one class, by double "
            "backward: largest norm outside that class over that within)", 0.0, "“the off-diagonal blocks are strictly zero”"),
    at_most("strict-output", f"{SOURCE}, Figure 6", "H_vv, MSE: strictly block-diagonal at every C (the same)", 0.0,
            "“H_vv is always strictly block-diagonal”"),
    *(
        less(f"{key}-clearer", f"{SOURCE}, {figure}", f"{name}: blocks become clearer whenever C grows (largest quotient of "
             "successive ratios)", 1, "“becomes clearer as C increases”")
        for key, name, figure, _, _ in PARTS
    ),
    *(
        standard_errors(f"{key}-rate", f"{SOURCE}, {figure}, Theorems 1 and 2", f"{name}: the ratio falls from the first to the last "
                        "C as the limits of the theorems say (log of the fall)")
        for key, name, figure, _, _ in PARTS
    ),
)  # fmt: skip


def limit_ratio(key: str, inputs: int, hidden: int, classes: int) -> float:
    """RMS off-diagonal over RMS diagonal norm, by the corrected limits at N = C examples."""
    ratio = inputs / classes
    limit = {
        "linear": lambda: block_limits.linear_cross_entropy(ratio, classes),
        "hidden-mse": lambda: block_limits.hidden_mse(ratio, classes, hidden),
        "hidden-ce": lambda: block_limits.hidden_cross_entropy(ratio, classes, hidden),
        "output-ce": lambda: block_limits.output_cross_entropy(classes, hidden),
    }[key]()
    return float(np.sqrt(limit.off_diagonal[0] / limit.diagonal[0]))


PROBES = 8  # classes at each C; every class is one where there are no more


def outside(problem: Problem, classes: int, rng: Rng) -> float:
    """Of the last layer: ‖H v‖ outside the block of one class over that within, v random in it; largest over `PROBES` classes.

    Products by double backward know nothing of blocks, unlike block norms, which take blocks that are zero for granted.
    """
    width = problem.space.shapes[-1][-1]
    chosen = np.unique(np.linspace(0, classes - 1, min(classes, PROBES)).astype(int))
    vectors = torch.zeros(problem.space.size, len(chosen))
    rows = vectors[-classes * width :].view(classes, width, -1)
    for place, label in enumerate(chosen):
        rows[label, :, place] = torch.randn(width, generator=rng.child("probe", int(label)).torch())
    image = (Hessian(problem) @ vectors)[-classes * width :].view(classes, width, -1)
    squares = image.double().square().sum(1).numpy()  # (class, probe)
    own = squares[chosen, np.arange(len(chosen))]
    return float(np.sqrt(((squares.sum(0) - own) / own).max()))


@dataclass(frozen=True)
class Config:
    """The paper has one example per class (N = C), so that d / N changes with C."""

    inputs: int = 32
    hidden: int = 8
    classes: tuple[int, ...] = (4, 16, 64)
    repeats: int = 8
    pixels: int = 128
    seed: int = 0


def run(config: Config) -> Findings:
    """RMS ratios of block norms over several networks; pictures of the first."""
    data: dict[str, Any] = {"classes": np.array(config.classes)}
    for name, hidden, loss in CASES:
        widths = (config.inputs, config.hidden) if hidden else (config.inputs,)
        every = np.zeros((len(config.classes), config.repeats, 2, 2))  # layer, diagonal or not
        pictures, strict = {}, 0.0
        for k, classes in enumerate(config.classes):
            for repeat in range(config.repeats):
                rng = Rng(config.seed).child("fig4_7", classes, repeat)
                x, y = gaussian_data(1, classes, config.inputs, rng)
                problem = problem_of(network((*widths, classes), rng), loss, x, y, classes)
                if repeat == 0:
                    picture = heat_map(problem, config.pixels, reduce="mean")
                    pictures[str(classes)] = {"image": picture.image, "bounds": picture.bounds}
                    strict = max(strict, outside(problem, classes, rng))
                every[k, repeat] = layer_squares(problem, ("fc1", f"fc{len(widths)}"))
        mean = every.mean(1)
        data[name] = {"ratios": np.sqrt(mean[:, :, 1] / mean[:, :, 0]).T, "pictures": pictures, "every": every}
        data[name]["outside"] = strict
    return data, _measured(config, data)


def _measured(config: Config, data: dict[str, Any]) -> dict[str, Measured]:
    found: dict[str, Measured] = {
        "strict": data[CASES[0][0]]["outside"],
        "strict-output": data[CASES[2][0]]["outside"],
    }
    for key, _, _, case, row in PARTS:
        ratios = data[case]["ratios"][row]
        found[f"{key}-clearer"] = float((ratios[1:] / ratios[:-1]).max())
        fall = np.log(ratios[0] / ratios[-1])
        ends = [limit_ratio(key, config.inputs, config.hidden, config.classes[k]) for k in (0, -1)]
        data.setdefault("limits", {})[key] = np.array(ends)
        theory = np.log(ends[0] / ends[1])
        first, last = (_log_error(data[case]["every"][k, :, row]) for k in (0, -1))
        error = float(np.hypot(first, last))
        found[f"{key}-rate"] = (abs(fall - theory) / error, f"{fall:.2f} against {theory:.2f} ± {error:.2f}")
    return found


def _log_error(squares: Any) -> float:
    """The standard error of log √(mean off-diagonal / mean diagonal) over networks."""
    mean, error = squares.mean(0), squares.std(0, ddof=1) / np.sqrt(len(squares))
    return float(0.5 * np.hypot(*(error / mean)))


def figures(result: Outcome) -> dict[str, Any]:
    """Each case's pictures over C, and the ratios with the rates of the theorems."""
    out: dict[str, Any] = {}
    classes = result.data["classes"]
    for (name, _, _), key in zip(CASES, ("fig4", "fig5", "fig6", "fig7"), strict=True):
        figure, axes = new_figure(1, len(classes), width=3.0, height=3.2)
        for axis, count in zip(np.atleast_1d(axes), classes, strict=True):
            picture = result.data[name]["pictures"][str(count)]
            names = ("w", "v")[2 - len(picture["bounds"]) :]
            drawn = draw_map(axis, picture["image"], picture["bounds"], f"C = {count}", names)
        map_bar(figure, axes, drawn)
        figure.suptitle(f"|H| at initialisation: {name}", fontsize=11)
        out[key] = figure
    figure, axis = new_figure(width=5.6, height=4.0)
    shown = ((CASES[1][0], 1, "linear, CE"), (CASES[2][0], 0, "H_ww, MSE"), (CASES[3][0], 0, "H_ww, CE"))
    for (name, row, label), ink in zip((*shown, (CASES[3][0], 1, "H_vv, CE")), CYCLE[:1] + CYCLE[2:], strict=False):
        axis.loglog(classes, result.data[name]["ratios"][row], "o-", color=ink, label=label)
    for n, (key, _, _, _, _) in enumerate(PARTS):
        ends, ink = result.data["limits"][key], (CYCLE[:1] + CYCLE[2:])[n]
        axis.loglog(
            classes[[0, -1]], ends, "--", color=ink, lw=1, label="its limit, first to last C" if n == 0 else None
        )
    axis.set(xlabel="number of classes C (N = C examples)", ylabel="off-diagonal / diagonal norm (RMS)")
    axis.set_xticks(classes, [str(c) for c in classes], minor=False)
    axis.set_xticks([], minor=True)
    axis.legend(fontsize=8)
    out["rates"] = figure
    return out


EXPERIMENT = experiment(
    __name__,
    "Four cases as the number of classes grows",
    "Dong et al. 2025, Figures 4-7",
    quick=Config(),
    default=Config(64, 8, (10, 100, 500), 8, 256),
    paper=Config(64, 8, (10, 100, 500), 20, 256),
    chosen="20 networks for each C, where the paper shows one; d = 64 and N = C are its own (Appendix G.3).",
)
