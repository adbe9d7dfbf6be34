"""Figures 2-3: the Hessian along training under MSE and CE; blocks stay, the stripes of H_wv vanish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...curvature import Problem
from ...plots.style import CYCLE, SEQUENTIAL, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ...structure import block_norms, circulant_score, heat_map
from ..declared import less, more
from ..recipe import Findings, experiment
from ._measured import (
    NEAR,
    SOURCE,
    Loss,
    diagonal_share,
    draw_maps,
    gaussian_data,
    network,
    problem_of,
    train,
    within,
)
from .stripes import cross_map

LOSSES: tuple[Loss, ...] = ("MSE", "CE")
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
# Under MSE H_vv is block-diagonal by its formula, so nothing is claimed of it.
PARTS = (
    ("MSE", "hidden", "H_ww", "Figure 2"),
    ("CE", "hidden", "H_ww", "Figure 3"),
    ("CE", "output", "H_vv", "Figure 3"),
)
CLAIMS = (
    *(
        more(f"{loss}-{key}", f"{SOURCE}, Finding 1, {figure}", f"{loss}: {part} is near-block-diagonal at every look (smallest "
             "share of its squared norm in diagonal blocks)", 0.5, NEAR, basis="convention")
        for loss, key, part, figure in PARTS
    ),
    *(
        more(f"{loss}-{key}-kept", f"{SOURCE}, Finding 1, {figure}", f"{loss}: {part} keeps that structure (last share over first)",
             0.5, "“maintains along training”: not lost by half", basis="convention")
        for loss, key, part, figure in PARTS
    ),
    less("cross", f"{SOURCE}, Appendix A, Figure 2", "MSE: H_wv is small beside H_ww and H_vv at all times (largest ‖H_wv‖² over "
         "the smaller of the two)", 1, "“negligible compared to H_ww and H_vv”: smaller than either"),
    more("stripes", f"{SOURCE}, Finding 2", "CE: H_wv is block-circulant at initialisation (share of its squared norm in that "
         "pattern)", 0.5, "“exhibits a block-circulant pattern”: more of it than of anything else", basis="convention"),
    less("fade", f"{SOURCE}, Finding 2", "CE: the pattern vanishes as training goes on (share at the end)", 0.5,
         "“vanishes”: no longer the larger part", basis="convention"),
    less("slopes", f"{SOURCE}, Appendix A, after (33)", "CE: it vanishes because p - y does (root mean square of p - y, end over "
         "start)", 0.5, "“p - y → 0”: at least halved", basis="convention"),
    more("stripes-stay", f"{SOURCE}, Appendix A, after (33)", "CE: the striped part keeps its size; the other term of (30) outgrows "
         "it (norm of the striped part, end over start)", 0.5, "the opposite of vanishing", corrected=True, basis="convention"),
    *(
        less(f"{loss}-converged", f"{SOURCE}, Figure 13", f"{loss}: the training loss has come to rest (its mean over the last "
             "tenth of the steps from that over the tenth before, over all that it fell)", 0.01, "“until convergence”: a hundredth of the way at most", basis="convention")
        for loss in LOSSES
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Inputs, hidden neurons and classes, examples per class, and Adam with a cosine schedule."""

    inputs: int = 48
    hidden: int = 8
    classes: int = 48
    per_class: int = 10
    steps: int = 600
    rate: float = 1e-2
    batch: int | None = None
    pixels: int = 160
    zoom: int = 12  # classes in the pictures of H_wv alone
    seed: int = 0


def run(config: Config) -> Findings:
    """Block ratios, the circulant score and pictures at six points of each training run."""
    rng = Rng(config.seed).child("fig2_3")
    x, y = gaussian_data(config.per_class, config.classes, config.inputs, rng)
    data: dict[str, Any] = {"bounds": np.zeros(0)}
    measured: dict[str, Any] = {}
    for loss in LOSSES:
        model = network((config.inputs, config.hidden, config.classes), rng.child("network"))
        start = problem_of(model, loss, x, y, config.classes)
        losses: list[float] = []
        kept = train(start, config.steps, config.rate, SHARES, config.batch, rng, losses)
        points = [start.at(parameters) for _, parameters in kept]
        course = _course(points)
        pictures = [heat_map(problem, config.pixels) for problem in points]
        data[loss] = {
            **course,
            "curve": np.array(losses),
            "steps": np.array([step for step, _ in kept]),
            "pictures": np.stack([picture.image for picture in pictures]),
        }
        if loss == "CE":
            data[loss]["cross_maps"] = np.stack(
                [cross_map(problem, config.zoom, config.pixels // 2) for problem in points]
            )
        data["bounds"] = pictures[0].bounds
        for case, key, _, _ in PARTS:
            if case == loss:
                share = course[f"{key}_share"]
                measured[f"{loss}-{key}"] = float(share.min())
                measured[f"{loss}-{key}-kept"] = float(share[-1] / share[0])
        tenth = max(1, len(losses) // 10)
        end, before = float(np.mean(losses[-tenth:])), float(np.mean(losses[-2 * tenth : -tenth]))
        measured[f"{loss}-converged"] = abs(end - before) / max(abs(losses[0] - end), 1e-300)
    measured["cross"] = float(data["MSE"]["cross_ratio"].max())
    ce = data["CE"]
    measured |= {
        "stripes": float(ce["score"][0]),
        "fade": float(ce["score"][-1]),
        "slopes": float(ce["slopes"][-1] / ce["slopes"][0]),
        "stripes-stay": float(ce["striped"][-1] / ce["striped"][0]),
    }
    return data, measured


def _course(points: list[Problem]) -> dict[str, Any]:
    found = [block_norms(problem) for problem in points]
    stripes = [circulant_score(problem) for problem in points]
    return {
        "loss": np.array([problem.loss_value() for problem in points]),
        "hidden": np.array([norms.layer_ratios["fc1"] for norms in found]),
        "output": np.array([norms.layer_ratios["fc2"] for norms in found]),
        "hidden_share": np.array([diagonal_share(within(n.norms, n.layers, "fc1")) for n in found]),
        "output_share": np.array([diagonal_share(within(n.norms, n.layers, "fc2")) for n in found]),
        "cross_ratio": np.array([_cross_ratio(n.norms, n.layers) for n in found]),
        "stripe_share": np.array([stripe.share for stripe in stripes]),
        "score": np.array([stripe.score for stripe in stripes]),
        "cross_share": np.array([stripe.cross_share for stripe in stripes]),
        "striped": np.array([stripe.cross * stripe.share**0.5 for stripe in stripes]),
        "slopes": np.array([_mean_slope(problem) for problem in points]),
    }


def _mean_slope(problem: Problem) -> float:
    """The root mean square of the loss's slope in the outputs."""
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in problem.batches:
            slope = problem.evaluate(batch, problem.parameters).output_gradient()  # type: ignore[union-attr]
            total, count = total + float(slope.square().sum()), count + slope.numel()
    return float((total / count) ** 0.5)


def _cross_ratio(norms: Any, layers: tuple[str, ...]) -> float:
    """‖H_wv‖² over the smaller of ‖H_ww‖² and ‖H_vv‖²."""
    own = [float((within(norms, layers, layer) ** 2).sum()) for layer in ("fc1", "fc2")]
    cross = 0.5 * (float((np.asarray(norms) ** 2).sum()) - sum(own))
    return cross / min(own)


def figures(result: Outcome) -> dict[str, Any]:
    """The pictures of Figures 2 and 3, and the scores over training."""
    out: dict[str, Any] = {}
    for loss, name in (("MSE", "fig2"), ("CE", "fig3")):
        part = result.data[loss]
        figure, axes = new_figure(2, 3, width=2.9, height=2.9)
        titles = [f"step {step:.0f}, loss {value:.3g}" for step, value in zip(part["steps"], part["loss"], strict=True)]
        draw_maps(figure, axes, part["pictures"], result.data["bounds"], titles, ("w", "v"))
        figure.suptitle(f"|H| along training, {loss}: hidden weights w, output weights v ", fontsize=11)
        out[name] = figure
    out["stripes"] = _zoomed(result.data["CE"], result.config)
    figure, axes = new_figure(1, 3, width=4.0, height=3.4)
    for loss, ink in zip(LOSSES, CYCLE, strict=False):
        part = result.data[loss]
        share = part["steps"] / part["steps"][-1]
        axes[0].plot(share, part["hidden"], "o-", color=ink, label=f"H_ww, {loss}")
        axes[0].plot(share, part["output"], "s--", color=ink, label=f"H_vv, {loss}")
        axes[1].plot(share, part["score"], "o-", color=ink, label=f"circulant score, {loss}")
        axes[1].plot(share, part["cross_share"], "s--", color=ink, label=f"share of ‖H‖² in H_wv, {loss}")
        axes[2].semilogy(share, part["striped"] / part["striped"][0], "o-", color=ink, label=f"stripes, {loss}")
        axes[2].semilogy(share, part["slopes"] / part["slopes"][0], "s--", color=ink, label=f"slopes, {loss}")
    axes[0].set_ylabel("off-diagonal / diagonal norm")
    axes[1].set_ylabel("score or share")
    axes[2].set_ylabel("relative to initialisation")
    for axis in axes:
        axis.set_xlabel("share of training")
        axis.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)  # above: lines fill the panels
    out["course"] = figure
    figure, axes = new_figure(1, 2, width=4.0, height=3.0)
    for axis, loss, ink in zip(axes, LOSSES, CYCLE, strict=False):
        curve = np.asarray(result.data[loss]["curve"])
        axis.semilogy(np.arange(1, len(curve) + 1), curve, color=ink, lw=1)
        axis.set(title=f"training loss, {loss}", xlabel="step", ylabel="loss of the batch")
    out["fig13"] = figure
    return out


def _zoomed(part: Any, config: Any) -> Any:
    """H_wv under CE for a few classes, where single columns can be seen."""
    figure, axes = new_figure(2, 3, width=3.6, height=2.7)
    m, shown = config["hidden"], config["zoom"]
    for axis, picture, step, share in zip(
        axes.flat, part["cross_maps"], part["steps"], part["stripe_share"], strict=True
    ):
        largest = float(np.quantile(picture, 0.999)) or 1.0
        axis.grid(False)
        drawn = axis.imshow(
            np.sqrt(picture / largest), cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto", interpolation="nearest"
        )
        axis.set_title(f"step {step:.0f}: {share:.2f} in stripes", fontsize=10)
        axis.set_xticks(m * np.arange(0, shown, 4) - 0.5, np.arange(1, shown + 1, 4))
        axis.set_yticks((np.arange(m) + 0.5) * len(picture) / m - 0.5, np.arange(1, m + 1))
        axis.tick_params(length=2)
    for axis in axes[-1]:
        axis.set_xlabel("class j")
    for axis in axes[:, 0]:
        axis.set_ylabel("hidden neuron i")
    figure.colorbar(drawn, ax=list(axes.flat), shrink=0.7, pad=0.01, extend="max").set_label(
        "√(|H| / its 99.9 % quantile)"
    )
    figure.suptitle(
        f"H_wv under CE, the first {shown} of {config['classes']} classes: one bright column i in every block",
        fontsize=11,
    )
    return figure


EXPERIMENT = experiment(
    __name__,
    "The Hessian along training: blocks stay, stripes vanish",
    "Dong et al. 2025, Figures 2, 3 and 13",
    quick=Config(),
    default=Config(500, 8, 500, 10, 12_000, 3e-3, 500, 500, 20),
    paper=Config(500, 8, 500, 10, 200_000, 1e-4, 500, 500, 20),
    chosen="10 examples per class, batches of 500 and 200,000 steps, which Adam at the paper's 1e-4 needs to come to rest.",
)
