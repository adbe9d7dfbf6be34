"""Compute, explain and predict the Hessian of neural networks.

Names are loaded when they are first used, so that the theory (`hesscope.rmt`, `hesscope.closed_form`) works without
importing torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

_HOMES = {
    "curvature": (
        "Problem",
        "Hessian",
        "GaussNewton",
        "FunctionalHessian",
        "Fisher",
        "Jacobian",
    ),
    "curvature.self_check": ("check",),
    "curvature.cost": ("plan",),
    "results.checks": (
        "CostPlan",
        "Verdict",
    ),
    "linalg": (
        "eigenpairs",
        "spectral_density",
        "trace",
        "diagonal",
        "row_norms",
        "frobenius_norm",
        "spectral_norm",
        "solve",
    ),
    "partition": ("Partition",),
    "structure": (
        "block_norms",
        "block_spectra",
        "circulant_score",
        "dense_hessian",
        "heat_map",
        "output_block_norms",
        "structure_history",
    ),
    "kron": (
        "decouple",
        "decouple_layers",
        "layer_hessian",
        "subspace_overlap",
        "matricize",
        "correspondence",
        "approximate_full_eigenpairs",
        "predicted_output_eigenspace",
        "model_overlap",
        "logit_gradients",
    ),
    "analysis.run": ("analyze",),
    "operators": ("Counted",),
    "measure": ("AtomicMeasure",),
    "result": ("Result",),
    "rng": ("Rng",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("closed_form", "errors", "pacbayes", "rmt", "testing", "zoo")

if TYPE_CHECKING:
    from . import closed_form as closed_form
    from . import errors as errors
    from . import pacbayes as pacbayes
    from . import rmt as rmt
    from . import testing as testing
    from . import zoo as zoo
    from .analysis.run import analyze as analyze
    from .curvature import Fisher as Fisher
    from .curvature import FunctionalHessian as FunctionalHessian
    from .curvature import GaussNewton as GaussNewton
    from .curvature import Hessian as Hessian
    from .curvature import Jacobian as Jacobian
    from .curvature import Problem as Problem
    from .curvature.cost import plan as plan
    from .curvature.self_check import check as check
    from .kron import approximate_full_eigenpairs as approximate_full_eigenpairs
    from .kron import correspondence as correspondence
    from .kron import decouple as decouple
    from .kron import decouple_layers as decouple_layers
    from .kron import layer_hessian as layer_hessian
    from .kron import logit_gradients as logit_gradients
    from .kron import matricize as matricize
    from .kron import model_overlap as model_overlap
    from .kron import predicted_output_eigenspace as predicted_output_eigenspace
    from .kron import subspace_overlap as subspace_overlap
    from .linalg import diagonal as diagonal
    from .linalg import eigenpairs as eigenpairs
    from .linalg import frobenius_norm as frobenius_norm
    from .linalg import row_norms as row_norms
    from .linalg import solve as solve
    from .linalg import spectral_density as spectral_density
    from .linalg import spectral_norm as spectral_norm
    from .linalg import trace as trace
    from .measure import AtomicMeasure as AtomicMeasure
    from .operators import Counted as Counted
    from .partition import Partition as Partition
    from .result import Result as Result
    from .results.checks import CostPlan as CostPlan
    from .results.checks import Verdict as Verdict
    from .rng import Rng as Rng
    from .structure import block_norms as block_norms
    from .structure import block_spectra as block_spectra
    from .structure import circulant_score as circulant_score
    from .structure import dense_hessian as dense_hessian
    from .structure import heat_map as heat_map
    from .structure import output_block_norms as output_block_norms
    from .structure import structure_history as structure_history


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'hesscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
