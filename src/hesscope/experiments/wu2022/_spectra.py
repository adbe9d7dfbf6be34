"""How close two lists of top eigenvalues are, and whether c - 1 of them stand out."""

from __future__ import annotations

from typing import Any

import numpy as np


def closeness(guess: Any, exact: Any, space: int) -> float:
    """The mean |log quotient| of the first `space` eigenvalues, over the range of log exact."""
    first, second = np.asarray(guess)[:space], np.asarray(exact)[:space]
    span = float(np.log(second[0] / second[-1]))
    return float(np.abs(np.log(first / second)).mean()) / max(span, 1e-12)


def widest_gap(values: Any, space: int) -> float:
    """λ_space/λ_(space+1) over the largest other quotient of neighbours among the first 2·space, but the very first."""
    top = np.asarray(values)[: 2 * space + 1]
    quotients = top[:-1] / np.maximum(top[1:], 1e-300)
    return float(quotients[space - 1] / np.delete(quotients, [0, space - 1]).max())
