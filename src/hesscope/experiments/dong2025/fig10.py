"""Figure 10: Collobert's binary problem, one output; where its blocks under CE come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...curvature import Problem
from ...plots.blocks import draw_heat
from ...plots.style import CYCLE, new_figure
from ...results.claims import Experiment, Outcome
from ...rng import Rng
from ...structure import block_norms, heat_map
from ...zoo import load
from ...zoo.models import initialised_by
from ...zoo.training import descend, drawn_batches
from ._measured import Loss, above, claim, outcome

LOSSES: tuple[Loss, ...] = ("CE", "MSE")


@dataclass(frozen=True)
class Config:
    """Ten tanh neurons and one output; Hessians after each number of steps of stochastic gradient descent in `marks`."""

    examples: int = 1000
    hidden: int = 10
    marks: tuple[int, ...] = (0, 50, 500)
    rate: float = 0.1
    batch: int = 20
    pixels: int = 200
    seed: int = 0
    data_dir: str | None = None


def run(config: Config) -> Outcome:
    """H_ww and its Gauss-Newton part at initialisation and during training."""
    forest = load("covtype", folder=config.data_dir, count=config.examples)
    x, y = forest.x, (forest.y == 1).to(forest.x.dtype)[:, None]
    rng = Rng(config.seed).child("fig10")
    data: dict[str, Any] = {"synthetic": forest.synthetic, "marks": np.array(config.marks)}
    for loss in LOSSES:
        with initialised_by(rng.child("network")):
            model = nn.Sequential(nn.Linear(x.shape[1], config.hidden), nn.Tanh(), nn.Linear(config.hidden, 1))
        data[loss] = _course(config, model, loss, x, y, rng)
    ce, mse = data["CE"], data["MSE"]
    alike = float(ce["gauss_newton"][0] / mse["gauss_newton"][0])
    claims = [
        above(
            "MSE: H_ww is not block-diagonal during training (mean ratio at the third mark)",
            "Figure 10b",
            float(mse["hessian"][2]),
            0.25,
        ),
        claim(
            "CE soon after the start is closer to block-diagonal than MSE ten times later (ratios)",
            "Figure 10",
            "CE < MSE",
            f"{ce['hessian'][1]:.3g} < {mse['hessian'][2]:.3g}",
            bool(ce["hessian"][1] < mse["hessian"][2]),
        ),
        claim(
            "p(1 - p) is in every block: at initialisation the Gauss-Newton parts of H_ww have the same ratio under both "
            "losses, and no block structure",
            "Appendix C, (34)",
            "CE / MSE within 25 % of 1, both >= 0.25",
            f"{alike:.3g}; {ce['gauss_newton'][0]:.3g}, {mse['gauss_newton'][0]:.3g}",
            abs(alike - 1) <= 0.25 and min(ce["gauss_newton"][0], mse["gauss_newton"][0]) >= 0.25,
        ),
        above(
            "Beyond the paper: the blocks under CE come from the functional part Σ (∂ℓ/∂f) ∂²f, which lives in diagonal "
            "blocks only (ratio of the Gauss-Newton part / ratio of H_ww, at initialisation)",
            "Figure 10a",
            float(ce["gauss_newton"][0] / ce["hessian"][0]),
            2.0,
        ),
        claim(
            "Beyond the paper: with one output the blocks under CE are transient (ratio at the start and at the end)",
            "Figure 10a",
            "start < end",
            f"{ce['hessian'][0]:.3g} < {ce['hessian'][-1]:.3g}",
            bool(ce["hessian"][0] < ce["hessian"][-1]),
        ),
    ]
    return outcome("fig10", config, data, claims)


def _course(config: Config, model: nn.Module, loss: Loss, x: Tensor, y: Tensor, rng: Rng) -> dict[str, Any]:
    """Ratios of H_ww and of its Gauss-Newton part, and a picture, at each mark."""
    optimizer = torch.optim.SGD(model.parameters(), lr=config.rate)
    found: dict[str, list[Any]] = {"hessian": [], "gauss_newton": [], "pictures": [], "loss": []}
    name = "bce" if loss == "CE" else "mse"

    def watch(step: int) -> None:
        if step in config.marks:
            problem = Problem.of(model, name, (x, y)).select("0.*")
            found["loss"].append(problem.loss_value())
            found["hessian"].append(block_norms(problem).ratio)
            found["gauss_newton"].append(block_norms(problem, matrix="gauss_newton").ratio)
            found["pictures"].append(heat_map(problem.select("0.weight"), config.pixels, reduce="mean").image)

    def value(chosen: Tensor) -> Tensor:
        f: Tensor = model(x[chosen])
        if loss == "CE":
            return nn.functional.binary_cross_entropy_with_logits(f, y[chosen])
        return (f - y[chosen]).square().mean()

    batches = drawn_batches(len(x), config.batch, max(config.marks), rng.child("order").torch())
    descend(optimizer, batches, value, watch=watch)
    return {key: np.array(values) for key, values in found.items()}


def figures(result: Outcome) -> dict[str, Any]:
    """|H_ww| at each mark, and the ratios with and without the functional part."""
    marks = result.data["marks"]
    figure, axes = new_figure(2, len(marks) + 1, width=3.0, height=3.0)
    for row, loss in enumerate(LOSSES):
        part = result.data[loss]
        for axis, picture, mark, value in zip(axes[row], part["pictures"], marks, part["loss"], strict=False):
            draw_heat(axis, picture, (), f"|H_ww|, {loss}, step {mark} (loss {value:.2f})")
        last = axes[row, -1]
        last.plot(marks, part["hessian"], "o-", color=CYCLE[0], label="H_ww")
        last.plot(marks, part["gauss_newton"], "s--", color=CYCLE[1], label="its Gauss-Newton part")
        last.set_xscale("symlog", linthresh=max(1, marks[1]))
        last.set(xlabel="steps", ylabel="off-diagonal / diagonal", ylim=(0, None), title=loss)
        last.legend(fontsize=8)
    data = "synthetic stand-in" if result.data["synthetic"] else "Forest CoverType"
    figure.suptitle(f"Ten tanh neurons, one output, {data}: ten by ten blocks (√ scale)", fontsize=11)
    return {"fig10": figure}


EXPERIMENT = Experiment(
    name="dong2025.fig10",
    title="Collobert's binary problem",
    source="Dong et al. 2025, Figure 10 (after Collobert 2004, Figures 7.3 and 7.5)",
    quick=Config(),
    paper=Config(examples=16000, marks=(0, 50, 500, 5000)),
    run=run,
    figures=figures,
)
