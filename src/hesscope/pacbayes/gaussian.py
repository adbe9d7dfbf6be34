"""The Kullback-Leibler divergence of the posterior from the prior, both Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import real_array
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
    named = {"mean": mean, "variance": variance, "prior_mean": prior_mean, "prior_variance": prior_variance}
    found = {name: _float(name, value) for name, value in named.items()}
    try:
        w, s, centre, scale = np.broadcast_arrays(*found.values())
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in found.items())
        refuse("mean, variance and prior_mean must have one shape", shapes, "Flatten them to one number per weight.")
    if not s.size:
        refuse("a divergence needs the mean and the variance of at least one weight", "none", "Check the arrays.")
    if not (np.all(s > 0) and np.all(scale > 0)):
        refuse("variances must be positive", f"a smallest of {min(float(s.min()), float(scale.min()))}", "Check them.")
    shift = w - centre
    if not np.all(np.isfinite(shift)):
        refuse("mean and prior_mean must be finite", "nan or infinity", "Check the weights.")
    return 0.5 * float(np.sum(excess(s / scale - 1.0)) + np.sum(shift * shift / scale))


def _float(name: str, value: Any) -> npt.NDArray[np.float64]:
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu().numpy()
    return real_array(name, value)
