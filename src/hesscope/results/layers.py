"""One row for each layer: how much curvature it holds, how it is spread, and how Kronecker it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..measure import Array
from ..result import Result


@dataclass(frozen=True, eq=False)
class LayerTable(Result):
    """The diagonal block of the Hessian of every layer (weight and bias together), each number with its error.

    `top` is its largest eigenvalue (`top_error`: the residual), `norm` its largest one in magnitude. `kronecker_error`
    is ‖H − E[M] ⊗ E[xxᵀ]‖_F / ‖H‖_F of the layer's weight, NaN where there is none. Standard errors are 0 where a
    number is exact; `methods` says how each layer's numbers were found.
    """

    _pictured = True

    names: tuple[str, ...]
    sizes: Array
    trace: Array
    trace_stderr: Array
    top: Array
    top_error: Array
    norm: Array
    norm_error: Array
    frobenius: Array
    frobenius_stderr: Array
    kronecker_error: Array
    kronecker_stderr: Array
    methods: tuple[str, ...]
    products: int
    check: str = "unchecked"

    def table(self) -> dict[str, Any]:
        return {
            "layer": self.names,
            "parameters": self.sizes.astype(int),
            "trace": self.trace,
            "trace ±": self.trace_stderr,
            "share": self.share,
            "share ±": self.share_stderr,
            "λ_max": self.top,
            "λ_max ±": self.top_error,
            "‖H‖_F": self.frobenius,
            "‖H‖_F ±": self.frobenius_stderr,
            "stable rank": self.stable_rank,
            "stable rank ±": self.stable_rank_stderr,
            "Kronecker error": self.kronecker_error,
            "Kronecker error ±": self.kronecker_stderr,
            "method": self.methods,
        }

    @property
    def share(self) -> Array:
        """tr H_layer / tr H: the layers' parts of the trace, which sum to 1; NaN where tr H is 0."""
        total = float(self.trace.sum())
        return self.trace / total if total else np.full_like(self.trace, np.nan)

    @property
    def share_stderr(self) -> Array:
        """The standard error of `share`, from those of the traces."""
        total, share, square = float(self.trace.sum()), self.share, self.trace_stderr**2
        if not total:
            return np.full_like(share, np.nan)
        others = square.sum() - square
        return np.asarray(np.sqrt((1 - share) ** 2 * square + share**2 * others) / abs(total))

    @property
    def stable_rank(self) -> Array:
        """‖H‖_F² / ‖H‖²: how many directions share the curvature of a layer; NaN where it has none."""
        return _divide(self.frobenius**2, self.norm**2)

    @property
    def stable_rank_stderr(self) -> Array:
        """The error of `stable_rank`, from those of both norms."""
        relative = _divide(self.frobenius_stderr, self.frobenius) + _divide(self.norm_error, self.norm)
        return np.asarray(2 * self.stable_rank * relative)


def _divide(a: Array, b: Array) -> Array:
    return np.asarray(np.divide(a, b, out=np.full_like(a, np.nan), where=b > 0))
