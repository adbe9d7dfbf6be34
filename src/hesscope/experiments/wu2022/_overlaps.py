"""What the figures of overlapping models share: arrays to draw, how far beyond chance, and whether it starts high."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import sem

from ...kron import ModelOverlap


def arrays(overlap: ModelOverlap) -> dict[str, Any]:
    """What `plots.kron.model_overlaps` draws."""
    return {name: getattr(overlap, name) for name in ("outputs", "measured", "permuted", "linear")}


def at_outputs(overlap: ModelOverlap) -> int:
    """k = m, or the largest k there is."""
    return min(overlap.outputs, len(overlap.mean))


def beyond_chance(overlap: ModelOverlap, pairs: Any = slice(None)) -> float:
    """Overlap of those pairs at k = m minus that of random spaces, in standard errors over pairs."""
    m = at_outputs(overlap)
    found = overlap.measured[pairs, m - 1]
    return float((found.mean() - m / overlap.size) / (sem(found) if len(found) > 1 else np.inf))


def starts_high(overlap: ModelOverlap) -> float:
    """The mean overlap over k <= m/2 over that at k = m: 1 if it is constant, at most a half if it grows from 0."""
    m = at_outputs(overlap)
    return float(overlap.mean[: max(1, m // 2)].mean() / overlap.mean[m - 1])
