"""Figures 11-12: clustered inputs do not make blocks, many classes do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.blocks import draw_heat
from ...plots.style import CYCLE, new_figure
from ...results.claims import Experiment, Outcome
from ...rng import Rng
from ...structure import block_norms, heat_map
from ._measured import Loss, above, below, clustered_data, mean_squares, network, outcome, problem_of

LOSSES: tuple[Loss, ...] = ("MSE", "CE")


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


def run(config: Config) -> Outcome:
    """The RMS ratio of H_ww over several networks and a picture for each number of clusters."""
    data: dict[str, Any] = {}
    claims = []
    sweeps = {"few": (config.few, config.few_clusters), "many": (config.many, config.many_clusters)}
    for loss, figure in zip(LOSSES, ("Figure 11", "Figure 12"), strict=True):
        found: dict[str, Any] = {}
        for key, (classes, sweep) in sweeps.items():
            ratios, pictures = [], []
            for clusters in sweep:
                squares = np.zeros(2)
                for repeat in range(config.repeats):
                    rng = Rng(config.seed).child("fig11_12", classes, clusters, repeat)
                    x, y = clustered_data(config.examples, classes, clusters, config.inputs, rng)
                    model = network((config.inputs, config.hidden, classes), rng)
                    problem = problem_of(model, loss, x, y, classes)
                    squares += mean_squares(block_norms(problem.select("fc1.weight")).norms)
                    if repeat == 0:
                        picture = heat_map(problem, config.pixels, reduce="mean")
                        pictures.append(picture.image)
                        bounds = picture.bounds
                ratios.append(np.sqrt(squares[1] / squares[0]))
            found[key] = {"clusters": sweep, "ratios": np.array(ratios), "pictures": tuple(pictures), "bounds": bounds}
        data[loss] = found
        few, many = found["few"]["ratios"], found["many"]["ratios"]
        claims += [
            above(f"{loss}: C = {config.few}: no blocks in H_ww, whatever K (smallest ratio)", figure, few.min(), 0.2),
            below(f"{loss}: C = {config.many}: blocks in H_ww, whatever K (largest ratio)", figure, many.max(), 0.1),
            above(
                f"{loss}: classes matter more than clusters (ratio of means over C / largest ratio over K)",
                figure,
                float(few.mean() / many.mean() / max(few.max() / few.min(), many.max() / many.min())),
                1.0,
            ),
        ]
    return outcome("fig11_12", config, data, claims)


def figures(result: Outcome) -> dict[str, Any]:
    """Pictures over K for few and many classes, and the ratios."""
    out: dict[str, Any] = {}
    for loss, name in zip(LOSSES, ("fig11", "fig12"), strict=True):
        columns = len(result.data[loss]["few"]["clusters"])
        figure, axes = new_figure(2, columns, width=2.3, height=2.5)
        for row, key in enumerate(("few", "many")):
            part = result.data[loss][key]
            for axis, picture, clusters in zip(axes[row], part["pictures"], part["clusters"], strict=True):
                draw_heat(axis, picture, part["bounds"], f"C = {result.config[key]}, K = {clusters}", ("w", "v"))
        figure.suptitle(f"|H| at initialisation, {loss}, K clusters (√ scale)", fontsize=11)
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


EXPERIMENT = Experiment(
    name="dong2025.fig11_12",
    title="Clusters do not make blocks, classes do",
    source="Dong et al. 2025, Figures 11 and 12",
    quick=Config(),
    paper=Config(64, 8, 2, 500, (2, 10, 100, 500), (500, 1000, 1500, 3000), 3000, 16, 200),
    run=run,
    figures=figures,
)
