"""How Kronecker each layer is."""

from __future__ import annotations

from typing import Any

import numpy as np

from .style import ACCENT, MEASURED, MUTED, THEORY, new_figure


def decoupling_figure(layers: Any) -> Any:
    """Per layer: true eigenvalues against those of E[M] ⊗ E[xxᵀ], and the overlap of their top-j spaces."""
    figure, axes = new_figure(2, len(layers), width=3.6, height=2.7, squeeze=False)
    for column, layer in enumerate(layers):
        upper, lower = axes[0, column], axes[1, column]
        count = min(layer.eigenvalues.size, layer.approximate_eigenvalues.size)
        rank = np.arange(1, count + 1)
        upper.semilogy(rank, layer.eigenvalues[:count], "o-", color=MEASURED, markersize=3, label="exact")
        upper.semilogy(
            rank, layer.approximate_eigenvalues[:count], "s--", color=THEORY, markersize=3, label="Kronecker"
        )
        upper.set_title(f"{layer.layer}: error {layer.frobenius_error:.0%} (Frobenius)", fontsize=10)
        upper.set_xlabel("rank")
        lower.plot(np.arange(1, layer.overlap.size + 1), layer.overlap, "o-", color=ACCENT, markersize=3)
        lower.axhline(0.9, color=MUTED, linewidth=0.8, linestyle=":")
        lower.set_ylim(0.0, 1.05)
        lower.set_xlabel("dimension j of the top space")
    axes[0, 0].set_ylabel("eigenvalue")
    axes[1, 0].set_ylabel("overlap")
    axes[0, 0].legend(frameon=False, fontsize=9)
    return figure
