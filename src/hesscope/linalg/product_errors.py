"""What an error of the products themselves does to results: an algorithm cannot see it, so it is added afterwards."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np

from ..operators import LinearOperator
from ..operators.tensors import tensor_of
from ..results.spectra import Eigenpairs, Estimate, Solution, SpectralDensity


def with_product_error(found: Any, op: LinearOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result with its error bars widened by what `op` says of its products.

    For A + E with ‖E v‖ ≤ ε ‖v‖ on the vectors that were multiplied: eigenvalues, diagonal entries and row norms move by
    ε, a spectrum by ε in W₁, traces and Frobenius norms by √n ε where the errors of products are not all alike.
    """
    error = op.product_error
    if error == 0 or not isinstance(found, Eigenpairs | Estimate | Solution | SpectralDensity):
        return found
    if isnan(error):
        return replace(found, product_error=error)
    if isinstance(found, Eigenpairs):
        residuals = found.residuals + error
        close = residuals <= found.tol * np.abs(found.values)
        return replace(found, residuals=residuals, converged=found.converged & close, product_error=error)
    if isinstance(found, SpectralDensity):
        return replace(found, error=found.error + error, product_error=error)
    if isinstance(found, Solution):
        right = args[0] if args else kwargs["b"]
        share = error * float(tensor_of(found.x).norm()) / max(float(tensor_of(right).norm()), 1e-300)
        return replace(found, residual=found.residual + share, product_error=error)
    own = error if np.ndim(found.value) else error * op.shape[0] ** 0.5
    return replace(found, stderr=np.hypot(found.stderr, own), exact=False, product_error=error)
