"""Figure 10: Collobert's binary problem, one output; where its blocks under CE come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...curvature import Problem
from ...plots.style import CYCLE, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ...structure import block_norms, heat_map
from ...zoo import load
from ...zoo.models import initialised_by
from ...zoo.training import descend, drawn_batches
from ..declared import less, more
from ..recipe import Experiment, Findings
from ._measured import NEAR, SOURCE, Loss, diagonal_share, draw_map, map_bar

LOSSES: tuple[Loss, ...] = ("CE", "MSE")
READINGS = (("step", 1, 2), ("epoch", 3, 4))  # what "1 iteration" and "10 iterations" may mean: places in `marks`
CLAIMS = (
    *(
        more(f"ce-{unit}", f"{SOURCE}, Figure 10a", f"CE, after 1 iteration, read as one {unit}: H_ww is near-block-diagonal (share "
             "of its squared norm in diagonal blocks)", 0.5, NEAR, basis="convention")
        for unit, _, _ in READINGS
    ),
    *(
        less(f"mse-{unit}", f"{SOURCE}, Figure 10b", f"MSE, after 10 iterations, read as {unit}s: H_ww is not (the same share)", 0.5,
             "“such structure disappeared when changing to MSE loss”", basis="convention")
        for unit, _, _ in READINGS
    ),
    *(
        less(f"gauss-newton-{loss}", f"{SOURCE}, Appendix C, (34)", f"{loss}: p(1 - p) is in every block: the Gauss-Newton part of "
             "H_ww at initialisation has no block structure (share in diagonal blocks)", 0.5, "the reverse of near-block-diagonal",
             corrected=True, basis="convention")
        for loss in LOSSES
    ),
    more("functional", f"{SOURCE}, Figure 10a, explained", "CE: the blocks come from the functional part Σ (∂ℓ/∂f) ∂²f, which lives "
         "in diagonal blocks only (share of H_ww minus share of its Gauss-Newton part, at initialisation)", 0,
         "the part that is added can only raise the share", corrected=True),
    less("transient", f"{SOURCE}, Figure 10a, beyond", "CE: with one output the blocks are transient (share at the last mark over "
         "that at the start)", 1, "“transient”: less at the end", corrected=True),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Ten tanh neurons and one output; Hessians after each number of steps of stochastic gradient descent in `marks`."""

    examples: int = 1000
    hidden: int = 10
    marks: tuple[int, ...] = (0, 1, 10, 50, 500)  # start, one and ten steps, one and ten epochs
    rate: float = 0.1
    batch: int = 20
    pixels: int = 200
    seed: int = 0
    data_dir: str | None = None


def run(config: Config) -> Findings:
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
    measured: dict[str, Any] = {
        "gauss-newton-CE": float(ce["gauss_newton_share"][0]),
        "gauss-newton-MSE": float(mse["gauss_newton_share"][0]),
        "functional": float(ce["share"][0] - ce["gauss_newton_share"][0]),
        "transient": float(ce["share"][-1] / ce["share"][0]),
    }
    for unit, one, ten in READINGS:
        measured[f"ce-{unit}"], measured[f"mse-{unit}"] = float(ce["share"][one]), float(mse["share"][ten])
    return data, measured


def _course(config: Config, model: nn.Module, loss: Loss, x: Tensor, y: Tensor, rng: Rng) -> dict[str, Any]:
    """Ratios of H_ww and of its Gauss-Newton part, and a picture, at each mark."""
    optimizer = torch.optim.SGD(model.parameters(), lr=config.rate)
    names = ("hessian", "gauss_newton", "share", "gauss_newton_share", "pictures", "loss")
    found: dict[str, list[Any]] = {key: [] for key in names}
    name = "bce" if loss == "CE" else "mse"

    def watch(step: int) -> None:
        if step in config.marks:
            problem = Problem.of(model, name, (x, y)).select("0.*")
            found["loss"].append(problem.loss_value())
            whole, part = block_norms(problem), block_norms(problem, matrix="gauss_newton")
            for key, norms in (("hessian", whole), ("gauss_newton", part)):
                found[key].append(norms.ratio)
            found["share"].append(diagonal_share(whole.norms))
            found["gauss_newton_share"].append(diagonal_share(part.norms))
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
    figure, axes = new_figure(2, len(marks), width=2.3, height=2.6)
    shares, beside = new_figure(1, 2, width=4.6, height=3.2, sharey=True)
    for row, loss in enumerate(LOSSES):
        part = result.data[loss]
        for axis, picture, mark, value in zip(axes[row], part["pictures"], marks, part["loss"], strict=True):
            drawn = draw_map(axis, picture, (), f"{loss}, step {mark}\nloss {value:.2f}")
        last = beside[row]
        last.plot(marks, part["share"], "o-", color=CYCLE[0], label="H_ww")
        last.plot(marks, part["gauss_newton_share"], "s--", color=CYCLE[1], label="its Gauss-Newton part")
        last.set_xscale("symlog", linthresh=1)
        last.set(xlabel="steps", ylabel="share in diagonal blocks", ylim=(0, 1.05), title=loss)
        last.legend(fontsize=8)
    map_bar(figure, axes, drawn)
    data = "synthetic stand-in" if result.data["synthetic"] else "Forest CoverType"
    figure.suptitle(f"Ten tanh neurons, one output, {data}: ten by ten blocks", fontsize=11)
    return {"fig10": figure, "shares": shares}


EXPERIMENT = Experiment.of(
    __name__,
    "Collobert's binary problem",
    "Dong et al. 2025, Figure 10 (after Collobert 2004, Figures 7.3 and 7.5)",
    quick=Config(),
    default=Config(examples=16000, marks=(0, 1, 10, 800, 8000)),
    paper=Config(examples=16000, marks=(0, 1, 10, 800, 8000)),
    chosen="SGD at 0.1 in batches of 20 on 16,000 rows; an iteration is read both as one step and as one epoch.",
)
