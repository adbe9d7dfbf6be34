"""Figures 11-12: clustered inputs do not make blocks, many classes do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import CYCLE, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ...structure import heat_map
from ..declared import less, more
from ..recipe import Findings, experiment
from ._measured import NEAR, SOURCE, Loss, clustered_data, draw_map, layer_squares, map_bar, network, problem_of

LOSSES: tuple[Loss, ...] = ("MSE", "CE")
CLAIMS = tuple(
    one
    for loss, figure in zip(LOSSES, ("Figure 11", "Figure 12"), strict=True)
    for one in (
        less(f"{loss}-few", f"{SOURCE}, {figure}", f"{loss}, few classes: H_ww has no block-diagonal structure, whatever K (largest "
             "share of its squared norm in diagonal blocks)", 0.5, "“no block-diagonal structure, regardless of K”", basis="convention"),
        more(f"{loss}-many", f"{SOURCE}, {figure}", f"{loss}, many classes: H_ww is block-diagonal, whatever K (smallest share)", 0.5,
             NEAR, basis="convention"),
        more(f"{loss}-C", f"{SOURCE}, {figure}", f"{loss}: classes matter more than clusters (ratio of means over C over the largest "
             "ratio over K)", 1, "“large C plays a more critical role than K”"),
        *(
            [more("CE-output", f"{SOURCE}, {figure}", "CE, many classes: H_vv is block-diagonal too, whatever K (smallest share)", 0.5,
                  NEAR, basis="convention")]
            if loss == "CE"
            else []
        ),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Few and many classes, each with the numbers of clusters to try (at least as many as classes)."""

    inputs: int = 32
    hidden: int = 8
    few: int = 2
    many: int = 64
    few_clusters: tuple[int, ...] = (2, 8, 32, 128)
    many_clusters: tuple[int, ...] = (64, 128, 256, 512)
    examples: int = 512
    repeats: int = 8
    pixels: int = 96
    seed: int = 0


def run(config: Config) -> Findings:
    """The RMS ratio of H_ww over several networks and a picture for each number of clusters."""
    data: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    sweeps = {"few": (config.few, config.few_clusters), "many": (config.many, config.many_clusters)}
    for loss in LOSSES:
        found: dict[str, Any] = {}
        for key, (classes, sweep) in sweeps.items():
            ratios, output, pictures = [], [], []
            for clusters in sweep:
                squares, last = np.zeros(2), np.zeros(2)
                for repeat in range(config.repeats):
                    rng = Rng(config.seed).child("fig11_12", classes, clusters, repeat)
                    x, y = clustered_data(config.examples, classes, clusters, config.inputs, rng)
                    model = network((config.inputs, config.hidden, classes), rng)
                    problem = problem_of(model, loss, x, y, classes)
                    if loss == "CE":
                        squares, last = np.array([squares, last]) + layer_squares(problem, ("fc1", "fc2"))
                    else:
                        squares += layer_squares(problem.select("fc1.weight"), ("fc1",))[0]
                    if repeat == 0:
                        picture = heat_map(problem, config.pixels, reduce="mean")
                        pictures.append(picture.image)
                        bounds = picture.bounds
                ratios.append(np.sqrt(squares[1] / squares[0]))
                output.append(np.sqrt(last[1] / last[0]) if loss == "CE" else 0.0)
            found[key] = {"clusters": sweep, "ratios": np.array(ratios), "output": np.array(output)}
            found[key] |= {"pictures": tuple(pictures), "bounds": bounds}
        data[loss] = found
        few, many = found["few"]["ratios"], found["many"]["ratios"]
        measured[f"{loss}-few"] = float(_share(few, config.hidden).max())
        measured[f"{loss}-many"] = float(_share(many, config.hidden).min())
        measured[f"{loss}-C"] = float(few.mean() / many.mean() / max(few.max() / few.min(), many.max() / many.min()))
        if loss == "CE":
            measured["CE-output"] = float(_share(found["many"]["output"], config.many).min())
    return data, measured


def _share(ratios: Any, blocks: int) -> Any:
    """The share of the squared norm in diagonal blocks, from RMS off-diagonal over RMS diagonal norm."""
    return 1 / (1 + (blocks - 1) * np.asarray(ratios) ** 2)


def figures(result: Outcome) -> dict[str, Any]:
    """Pictures over K for few and many classes, and the ratios."""
    out: dict[str, Any] = {}
    for loss, name in zip(LOSSES, ("fig11", "fig12"), strict=True):
        columns = len(result.data[loss]["few"]["clusters"])
        figure, axes = new_figure(2, columns, width=2.3, height=2.5)
        for row, key in enumerate(("few", "many")):
            part = result.data[loss][key]
            for axis, picture, clusters in zip(axes[row], part["pictures"], part["clusters"], strict=True):
                drawn = draw_map(axis, picture, part["bounds"], f"C = {result.config[key]}, K = {clusters}", ("w", "v"))
        map_bar(figure, axes, drawn)
        figure.suptitle(f"|H| at initialisation, {loss}, K clusters", fontsize=11)
        out[name] = figure
    figure, axis = new_figure(width=5.0, height=3.6)
    for loss, ink in zip(LOSSES, CYCLE, strict=False):
        for key, style in (("few", "o-"), ("many", "s--")):
            part = result.data[loss][key]
            axis.loglog(part["clusters"], part["ratios"], style, color=ink, label=f"{loss}, C = {result.config[key]}")
    axis.set(xlabel="number of clusters K", ylabel="H_ww: off-diagonal / diagonal norm")
    axis.legend(fontsize=8)
    out["ratios"] = figure
    return out


EXPERIMENT = experiment(
    __name__,
    "Clusters do not make blocks, classes do",
    "Dong et al. 2025, Figures 11 and 12",
    quick=Config(),
    default=Config(64, 8, 2, 200, (2, 10, 100, 500), (200, 400, 600, 1200), 1200, 8, 200),
    paper=Config(64, 8, 2, 500, (2, 10, 100, 500), (500, 1000, 1500, 3000), 3000, 16, 200),
    chosen="3000 examples, which share out evenly among up to 3,000 clusters, and 16 networks for each K, where the paper shows one; Appendix G.3 says "
    "input_dim = 64, which is taken, and N = C, which would leave clusters without an example.",
)
