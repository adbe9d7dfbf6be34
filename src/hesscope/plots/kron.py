"""Figures of layer-wise decoupling: spectra and overlaps, correspondence matrices, clusters of logit gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .style import ACCENT, CYCLE, MEASURED, MUTED, SEQUENTIAL, THEORY, new_figure, panel_grid


def spectrum_and_overlap(panels: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]], guess: str = "decoupled") -> Any:
    """For every name: exact and approximate eigenvalues above, overlap of the top-k eigenspaces below."""
    figure, axes = new_figure(2, len(panels), width=4.2, height=2.9, squeeze=False)
    for column, (name, (exact, near, overlap)) in enumerate(panels.items()):
        index = np.arange(1, len(np.asarray(exact)) + 1)
        top, bottom = axes[0, column], axes[1, column]
        top.plot(index, exact, "o-", color=MEASURED, markersize=3, label="exact")
        top.plot(index, near, "x--", color=THEORY, markersize=3.5, label=guess)
        top.set_yscale("log")
        for axis in (top, bottom):
            axis.xaxis.get_major_locator().set_params(integer=True)
        top.set(title=name, ylabel="eigenvalue" if column == 0 else "", xlabel="index")
        bottom.plot(index, overlap, color=MEASURED)
        bottom.set(ylim=(0, 1.03), ylabel="overlap of top-k spaces" if column == 0 else "", xlabel="k")
        if column == 0:
            top.legend(frameon=False, fontsize=9)
    return figure


def model_overlaps(panels: Mapping[str, Mapping[str, Any]]) -> Any:
    """Overlap between models over k, with its spread over pairs, the linear law and the output dimension."""
    figure, axes = new_figure(1, len(panels), width=4.4, height=3.3, squeeze=False)
    for column, (name, panel) in enumerate(panels.items()):
        axis = axes[0, column]
        measured = np.asarray(panel["measured"])
        k = np.arange(1, measured.shape[1] + 1)
        mean, spread = measured.mean(0), measured.std(0)
        axis.fill_between(k, mean - spread, mean + spread, color=MEASURED, alpha=0.18, linewidth=0)
        axis.plot(k, mean, color=MEASURED, label="measured, mean ± s.d. of pairs")
        axis.plot(k, np.asarray(panel["permuted"]).mean(0), ":", color=ACCENT, label="expected over permuted units")
        m = int(panel["outputs"])
        law = np.asarray(panel["linear"]).mean(0)
        axis.plot(k[:m], law[:m], "--", color=THEORY, label=r"$\frac{k}{m}(t_1\cdot t_2)^2$")
        axis.axvline(m, color=MUTED, linewidth=0.8)
        axis.xaxis.get_major_locator().set_params(integer=True)
        top = 1.35 * float(np.max(mean + spread))  # the law may leave the picture: what was measured must be seen
        axis.set(title=f"{name} (m = {m})", xlabel="k", ylabel="overlap" if column == 0 else "", ylim=(0, top))
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=9
    )
    return figure


def correspondences(panels: Mapping[str, ArrayLike], columns: int = 2) -> Any:
    """Heat maps of correspondence matrices: basis vectors down, eigenvectors across, entries between 0 and 1."""
    figure, axes = panel_grid(len(panels), columns, width=4.6, height=3.0)
    for axis, (name, matrix) in zip(axes, panels.items(), strict=True):
        values = np.asarray(matrix)
        extent = (0.5, values.shape[1] + 0.5, values.shape[0] + 0.5, 0.5)  # counted from one, as in the text
        image = axis.imshow(
            values, aspect="auto", cmap=SEQUENTIAL, vmin=0, vmax=1, interpolation="nearest", extent=extent
        )
        axis.grid(False)
        for line in (axis.xaxis, axis.yaxis):
            line.get_major_locator().set_params(integer=True)
        axis.set(title=name, xlabel="eigenvector of the layer's Hessian", ylabel="basis vector")
        figure.colorbar(image, ax=axis, shrink=0.85)
    return figure


def curves(
    panels: Mapping[str, Mapping[str, ArrayLike]],
    xlabel: str,
    ylabel: str,
    *,
    log: bool = False,
    x: ArrayLike | None = None,
) -> Any:
    """Lines by name in panels by name, at most three beside each other, over `x` (by default 1, 2, ...)."""
    columns = len(panels) if len(panels) <= 3 else -(-len(panels) // 2)
    figure, axes = panel_grid(len(panels), columns, width=4.2, height=3.2)
    for column, (axis, (title, lines)) in enumerate(zip(axes, panels.items(), strict=True)):
        for name, values in lines.items():
            data = np.asarray(values)
            axis.plot(np.arange(1, len(data) + 1) if x is None else x, data, "o-", markersize=3, label=name)
        if log:
            axis.set_yscale("log")
        axis.set(title=title, xlabel=xlabel, ylabel=ylabel if column % columns == 0 else "")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(frameon=len(lines) > 3, fontsize=8)  # a frame where lines may pass behind
    return figure


def bars(
    groups: Sequence[str],
    values: Mapping[str, ArrayLike],
    ylabel: str,
    marks: Mapping[str, Sequence[float]] | None = None,
) -> Any:
    """Bars by name beside each other, for every group; `marks` are the paper's own numbers for the bars of a name."""
    figure, axis = new_figure(1, 1, width=min(10.0, max(5.0, 0.7 * len(groups) + 2)), height=3.4)
    width = 0.8 / len(values)
    for i, (name, heights) in enumerate(values.items()):
        places = np.arange(len(groups)) + (i - (len(values) - 1) / 2) * width
        axis.bar(places, heights, width, label=name, color=CYCLE[i])
        if marks is not None and name in marks:
            axis.plot(places, marks[name], "D", color="white", mec="black", ms=6, label="paper's number")
    upright = len(groups) > 12  # slanted names of so many would lie on each other
    turned = {"rotation": 90} if upright else {"rotation": 35, "ha": "right"} if len(groups) > 4 else {}
    axis.set_xticks(range(len(groups)), groups, fontsize=8, **turned)
    axis.set_ylabel(ylabel)
    if len(values) > 1 or marks is not None:
        axis.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return figure


def ranges(
    found: Mapping[str, ArrayLike], printed: Mapping[str, Sequence[float]], label: str, *, log: bool = False
) -> Any:
    """Mean with smallest and largest of each group, and below it the paper's mean with its range: one row for each group."""
    figure, axis = new_figure(1, 1, width=8.0, height=0.32 * len(found) + 1.3)
    for place, (name, values) in enumerate(found.items()):
        ours = np.asarray(values)
        rows = [(-0.14, ours.mean(), ours.min(), ours.max(), MEASURED, "o", "ours: mean, smallest, largest")]
        if name in printed:
            mean, low, high = printed[name]
            rows.append((0.14, mean, low, high, THEORY, "D", "paper"))
        for shift, mean, low, high, ink, mark, said in rows:
            known = axis.get_legend_handles_labels()[1]
            axis.errorbar(
                [mean], [place + shift], xerr=[[max(0.0, mean - low)], [max(0.0, high - mean)]], fmt=mark, color=ink, ms=5,
                capsize=3, label=None if said in known else said,
            )  # fmt: skip
    axis.set_ylim(len(found) - 0.5, -0.5)
    axis.set_yticks(range(len(found)), list(found), fontsize=8)
    axis.set_xlabel(label)
    if log:
        axis.set_xscale("log")
    axis.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure


def clusters(panels: Mapping[str, ArrayLike]) -> Any:
    """Embedded logit gradients `(classes, logits, 2)`: coloured by logit, the digit is the class."""
    figure, axes = new_figure(1, len(panels), width=4.4, height=4.2, squeeze=False)
    for axis, (name, embedded) in zip(axes.flat, panels.items(), strict=True):
        points = np.asarray(embedded)
        inks = [f"C{j % 10}" if points.shape[1] > len(CYCLE) else CYCLE[j] for j in range(points.shape[1])]
        apart = np.linalg.norm(points[:, None] - points[None], axis=-1) + 1e9 * np.eye(len(points))[:, :, None]
        room = float(np.median(apart.min(0))) / float(np.ptp(points[..., 0]))  # of a digit, as a part of the width
        for j, ink in enumerate(inks):
            if room < 0.01:  # digits on top of each other say nothing
                axis.scatter(*points[:, j].T, s=12, color=ink, alpha=0.6, linewidths=0)
                axis.annotate(
                    f"logit {j}", points[:, j].mean(0), (7, 3), textcoords="offset points", color=ink, fontsize=8
                )
                continue
            axis.scatter(*points[:, j].T, s=0)
            for i, place in enumerate(points[:, j]):
                axis.text(*place, str(i), color=ink, fontsize=8, ha="center", va="center")
        said = "one dot for each class" if room < 0.01 else "number: class"
        axis.set(title=f"{name}\ncolour: logit, {said}", xticks=[], yticks=[])
        axis.set(xlabel="t-SNE 1", ylabel="t-SNE 2")
    return figure
