"""The same numbers at checkpoints along training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..measure import Array
from ..result import Result
from .blocks import BlockNorms
from .spectra import Eigenpairs, Estimate


@dataclass(frozen=True, eq=False)
class TrainingHistory(Result):
    """Loss, block norms and, where they were asked for, λ_max and traces at each checkpoint, one per label.

    `snapshots` holds the block norms, from which the shares and ratios are read; `circulant` is the score of the
    stripes of H_wv (NaN for networks without two linear layers in a row). Any of these may be empty: not measured.
    """

    _pictured = True

    labels: tuple[str, ...]
    loss: Array
    snapshots: tuple[BlockNorms, ...] = ()
    tops: tuple[Eigenpairs, ...] = ()
    traces: tuple[Estimate, ...] = ()
    circulant: Array = field(default_factory=lambda: np.zeros(0))

    def table(self) -> dict[str, Any]:
        measured = {
            "loss": self.loss,
            "λ_max": self.sharpness,
            "trace": self.trace,
            "diagonal share": self.diagonal_share,
        }
        return {"step": self.labels, **{name: found for name, found in measured.items() if found.size}}

    @property
    def steps(self) -> Array:
        """The labels as numbers, or 0, 1, 2, ... where they are words."""
        try:
            return np.array([float(label) for label in self.labels])
        except ValueError:
            return np.arange(float(len(self.labels)))

    @property
    def sharpness(self) -> Array:
        """λ_max at each checkpoint."""
        return np.array([float(top.values[0]) for top in self.tops])

    @property
    def trace(self) -> Array:
        """tr H at each checkpoint."""
        return np.array([float(trace) for trace in self.traces])

    @property
    def diagonal_share(self) -> Array:
        """The share of ‖H‖² in the blocks on the diagonal."""
        return np.array([norms.diagonal_share for norms in self.snapshots])

    @property
    def largest_ratio(self) -> Array:
        """The ratio of the worst pair of blocks in one layer."""
        return np.array([norms.largest_ratio for norms in self.snapshots])

    @property
    def ratios(self) -> dict[str, Array]:
        """The mean ratio of off-diagonal to diagonal norms of each layer."""
        found = [norms.layer_ratios for norms in self.snapshots]
        return {layer: np.array([ratios[layer] for ratios in found]) for layer in (found[0] if found else ())}
