"""The figure of a stability result: eigenvalues against the edge, and the blocks that bind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..results.stability import Binding, Stability
from .style import ACCENT, MEASURED, MUTED, THEORY, new_figure

MOST_BLOCKS = 12


def stability_figure(found: Stability) -> Any:
    """Left: lr · λ over the edge, of H and G, with what batches and the real step say; right: shares by layer."""
    layers = [one for one in found.bindings if one.by == "layer"] or list(found.bindings[:1])
    figure, axes = new_figure(1, 1 + len(layers), width=4.8, height=3.6, squeeze=False)
    _edge_panel(axes[0][0], found)
    if layers:
        _binding_panel(axes[0][1], layers[0])
    figure.suptitle(f"{found.optimizer} at rate {found.hessian.rate:.3g}: {found.ratio:.2g} of its edge", fontsize=11)
    return figure


def _edge_panel(axis: Any, found: Stability) -> None:
    h = found.hessian
    ranks = np.arange(1, len(h.top.values) + 1)
    axis.errorbar(
        ranks, h.top.values / h.edge, h.top.residuals / h.edge, fmt="o", color=MEASURED, ms=5, label="Hessian"
    )
    if found.gauss_newton is not None:
        g = found.gauss_newton
        axis.plot(
            np.arange(1, len(g.top.values) + 1), g.top.values / g.edge, "D", color=ACCENT, ms=9, mfc="none",
            label="Gauss-Newton",
        )  # fmt: skip
    axis.axhline(1.0, color=THEORY, lw=1.2, ls="--", label="edge")
    if found.step is not None and math.isfinite(found.step.critical_rate):
        axis.axhline(h.rate / found.step.critical_rate, color=MUTED, lw=1, ls=":", label="along the real next step")
    if np.all(h.top.values > 0):
        axis.set_yscale("log")
    axis.set(xlabel="eigenvalue", ylabel="lr · λ / edge", title="curvature as the optimiser sees it")
    axis.set_xticks(ranks)
    axis.legend(fontsize=8)


def _binding_panel(axis: Any, one: Binding) -> None:
    order = list(one.order[:MOST_BLOCKS])[::-1]
    places = np.arange(len(order))
    axis.barh(places, 100 * one.share[order], color=MEASURED, height=0.65)
    for place, index in zip(places, order, strict=True):
        gain = one.sharpness / one.frozen[index] if one.frozen[index] > 0 else math.inf
        text = f"×{gain:.2g}" if gain < 100 else "×>100"
        axis.annotate(
            text, (100 * one.share[index], place), xytext=(4, 0), textcoords="offset points", fontsize=8, va="center"
        )
    axis.set_yticks(places, [one.names[i] for i in order], fontsize=8)
    axis.set_xlim(0, 115 * max(float(one.share.max()), 1e-3))
    axis.set(xlabel="share of the leading eigenvector, %\n(× critical rate if frozen)", title=f"binding {one.by}s")
