"""The Kullback-Leibler divergence of the posterior from the prior, both Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import refuse
from .kl import excess


def gaussian_kl(
    mean: npt.ArrayLike, variance: npt.ArrayLike, prior_mean: npt.ArrayLike, prior_variance: npt.ArrayLike
) -> float:
    """KL(N(w, diag s) ‖ N(w₀, λ I)) = ½ Σ_i [ s_i/λ - 1 - log(s_i/λ) + (w_i - w₀_i)²/λ ], in float64.

    The prior is the same in every orthonormal basis, so w, s and w₀ may be given in the one where the posterior is
    diagonal. Terms are summed as numbers that are never negative, so nothing cancels.

    >>> gaussian_kl([0.0, 0.0], [2.0, 2.0], [0.0, 0.0], 2.0)
    0.0
    """
    s, scale = _float(variance), _float(prior_variance)
    if not (np.all(s > 0) and np.all(scale > 0)):
        refuse("variances must be positive", f"a smallest of {min(float(s.min()), float(scale.min()))}", "Check them.")
    shift = _float(mean) - _float(prior_mean)
    return 0.5 * float(np.sum(excess(s / scale - 1.0)) + np.sum(shift * shift / scale))


def _float(value: Any) -> npt.NDArray[np.float64]:
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu().numpy()
    return np.asarray(value, dtype=np.float64)
