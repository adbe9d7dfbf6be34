"""Compute, explain and predict the Hessian of neural networks.

Names are loaded when they are first used, so that the theory (`hesscope.rmt`, `hesscope.closed_form`) works without
importing torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

_HOME = {
    "Problem": "curvature",
    "Hessian": "curvature",
    "GaussNewton": "curvature",
    "FunctionalHessian": "curvature",
    "Fisher": "curvature",
    "Jacobian": "curvature",
    "check": "curvature.check",
    "plan": "curvature.plan",
    "eigenpairs": "linalg",
    "spectral_density": "linalg",
    "trace": "linalg",
    "diagonal": "linalg",
    "row_norms": "linalg",
    "frobenius_norm": "linalg",
    "spectral_norm": "linalg",
    "solve": "linalg",
    "Counted": "operators",
    "Rng": "rng",
    "Result": "result",
}
_MODULES = ("errors", "rmt", "closed_form", "testing")

if TYPE_CHECKING:
    from .curvature import Fisher as Fisher
    from .curvature import FunctionalHessian as FunctionalHessian
    from .curvature import GaussNewton as GaussNewton
    from .curvature import Hessian as Hessian
    from .curvature import Jacobian as Jacobian
    from .curvature import Problem as Problem
    from .operators import Counted as Counted
    from .result import Result as Result
    from .rng import Rng as Rng


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'hesscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_MODULES])
