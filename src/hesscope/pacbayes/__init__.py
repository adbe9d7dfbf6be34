"""PAC-Bayes bounds on the true error of a stochastic network, in Hessian eigenbases.

The bounds themselves are NumPy; what optimises a posterior is loaded, with torch, when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .bounds import Bound as Bound
from .bounds import Grid as Grid
from .bounds import bound as bound
from .gaussian import gaussian_kl as gaussian_kl
from .kl import binary_kl as binary_kl
from .kl import binary_kl_inverse as binary_kl_inverse
from .settings import PosteriorMethod as PosteriorMethod
from .settings import Settings as Settings

if TYPE_CHECKING:
    from .posterior.certificate import Certificate as Certificate
    from .posterior.optimisation import optimize as optimize
    from .posterior.sample import split as split

_NEEDS_TORCH = {"Certificate": "certificate", "optimize": "optimisation", "split": "sample"}
__all__ = (
    "Bound",
    "Certificate",
    "Grid",
    "PosteriorMethod",
    "Settings",
    "binary_kl",
    "binary_kl_inverse",
    "bound",
    "gaussian_kl",
    "optimize",
    "split",
)


def __getattr__(name: str) -> Any:
    if name in _NEEDS_TORCH:
        return getattr(importlib.import_module(f".posterior.{_NEEDS_TORCH[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
