"""Compute, explain and predict the Hessian of neural networks.

Names are loaded when they are first used, so that the theory (`hesscope.rmt`, `hesscope.closed_form`) works without
importing torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

# Everything public, by the module that defines it; type checkers read the same names below.
_HOMES = {
    "analysis.config": ("AnalyzeConfig",),
    "analysis.layer_table": ("per_layer",),
    "analysis.run": ("analyze",),
    "curvature": (
        "CurvatureOperator",
        "Fisher",
        "FunctionalHessian",
        "GaussNewton",
        "Hessian",
        "Jacobian",
        "Problem",
    ),
    "curvature.costs.plans": ("plan",),
    "curvature.self_check": ("check",),
    "kron": (
        "Decoupling",
        "LayerHessian",
        "approximate_full_eigenpairs",
        "correspondence",
        "decouple",
        "decouple_layers",
        "layer_hessian",
        "logit_gradients",
        "matricize",
        "model_overlap",
        "predicted_output_eigenspace",
        "subspace_overlap",
    ),
    "landscapes": ("landscape",),
    "linalg": (
        "diagonal",
        "eigenpairs",
        "frobenius_norm",
        "row_norms",
        "solve",
        "spectral_density",
        "spectral_norm",
        "trace",
    ),
    "measure": ("AtomicMeasure",),
    "monitor.monitor": ("Monitor",),
    "operators": (
        "BlockDiagonal",
        "Counted",
        "Dense",
        "FromFunction",
        "Identity",
        "Kronecker",
        "LinearOperator",
        "LowRank",
        "Product",
        "Sum",
        "Transposed",
    ),
    "partition": ("Partition",),
    "result": ("Result",),
    "results.analysis": ("Analysis",),
    "results.blocks": (
        "BlockNorms",
        "BlockSpectra",
        "CirculantScore",
        "HeatMap",
        "OutputNorms",
    ),
    "results.checks": (
        "CostPlan",
        "MethodCheck",
        "Verdict",
    ),
    "results.claims": (
        "Claim",
        "Outcome",
    ),
    "results.history": ("TrainingHistory",),
    "results.kronecker": (
        "FullApproximation",
        "KroneckerComparison",
        "KroneckerErrors",
        "KroneckerPrediction",
        "LogitGradients",
        "ModelOverlap",
        "PredictedEigenspace",
    ),
    "results.landscape": (
        "BreakingDistance",
        "Landscape",
        "LossLine",
        "LossPlane",
    ),
    "results.layers": ("LayerTable",),
    "results.monitoring": ("MonitoredRun", "Reading"),
    "results.spectra": (
        "Eigenpairs",
        "Estimate",
        "Solution",
        "SpectralDensity",
    ),
    "results.stability": (
        "BatchCurvature",
        "Binding",
        "CriticalStep",
        "EdgeReading",
        "Stability",
    ),
    "rng": ("Rng",),
    "space": ("ParameterSpace",),
    "step_stability": (
        "OptimizerState",
        "Preconditioned",
        "read_edge",
        "read_optimizer",
        "stability",
    ),
    "structure": (
        "block_norms",
        "block_spectra",
        "circulant_score",
        "dense_hessian",
        "heat_map",
        "output_block_norms",
        "structure_history",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("closed_form", "errors", "huggingface", "pacbayes", "rmt", "testing", "zoo")
__all__ = sorted([*_HOME, *_MODULES, "__version__"])

if TYPE_CHECKING:
    from . import closed_form as closed_form
    from . import errors as errors
    from . import huggingface as huggingface
    from . import pacbayes as pacbayes
    from . import rmt as rmt
    from . import testing as testing
    from . import zoo as zoo
    from .analysis.config import AnalyzeConfig as AnalyzeConfig
    from .analysis.layer_table import per_layer as per_layer
    from .analysis.run import analyze as analyze
    from .curvature import CurvatureOperator as CurvatureOperator
    from .curvature import Fisher as Fisher
    from .curvature import FunctionalHessian as FunctionalHessian
    from .curvature import GaussNewton as GaussNewton
    from .curvature import Hessian as Hessian
    from .curvature import Jacobian as Jacobian
    from .curvature import Problem as Problem
    from .curvature.costs.plans import plan as plan
    from .curvature.self_check import check as check
    from .kron import Decoupling as Decoupling
    from .kron import LayerHessian as LayerHessian
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
    from .landscapes import landscape as landscape
    from .linalg import diagonal as diagonal
    from .linalg import eigenpairs as eigenpairs
    from .linalg import frobenius_norm as frobenius_norm
    from .linalg import row_norms as row_norms
    from .linalg import solve as solve
    from .linalg import spectral_density as spectral_density
    from .linalg import spectral_norm as spectral_norm
    from .linalg import trace as trace
    from .measure import AtomicMeasure as AtomicMeasure
    from .monitor.monitor import Monitor as Monitor
    from .operators import BlockDiagonal as BlockDiagonal
    from .operators import Counted as Counted
    from .operators import Dense as Dense
    from .operators import FromFunction as FromFunction
    from .operators import Identity as Identity
    from .operators import Kronecker as Kronecker
    from .operators import LinearOperator as LinearOperator
    from .operators import LowRank as LowRank
    from .operators import Product as Product
    from .operators import Sum as Sum
    from .operators import Transposed as Transposed
    from .partition import Partition as Partition
    from .result import Result as Result
    from .results.analysis import Analysis as Analysis
    from .results.blocks import BlockNorms as BlockNorms
    from .results.blocks import BlockSpectra as BlockSpectra
    from .results.blocks import CirculantScore as CirculantScore
    from .results.blocks import HeatMap as HeatMap
    from .results.blocks import OutputNorms as OutputNorms
    from .results.checks import CostPlan as CostPlan
    from .results.checks import MethodCheck as MethodCheck
    from .results.checks import Verdict as Verdict
    from .results.claims import Claim as Claim
    from .results.claims import Outcome as Outcome
    from .results.history import TrainingHistory as TrainingHistory
    from .results.kronecker import FullApproximation as FullApproximation
    from .results.kronecker import KroneckerComparison as KroneckerComparison
    from .results.kronecker import KroneckerErrors as KroneckerErrors
    from .results.kronecker import KroneckerPrediction as KroneckerPrediction
    from .results.kronecker import LogitGradients as LogitGradients
    from .results.kronecker import ModelOverlap as ModelOverlap
    from .results.kronecker import PredictedEigenspace as PredictedEigenspace
    from .results.landscape import BreakingDistance as BreakingDistance
    from .results.landscape import Landscape as Landscape
    from .results.landscape import LossLine as LossLine
    from .results.landscape import LossPlane as LossPlane
    from .results.layers import LayerTable as LayerTable
    from .results.monitoring import MonitoredRun as MonitoredRun
    from .results.monitoring import Reading as Reading
    from .results.spectra import Eigenpairs as Eigenpairs
    from .results.spectra import Estimate as Estimate
    from .results.spectra import Solution as Solution
    from .results.spectra import SpectralDensity as SpectralDensity
    from .results.stability import BatchCurvature as BatchCurvature
    from .results.stability import Binding as Binding
    from .results.stability import CriticalStep as CriticalStep
    from .results.stability import EdgeReading as EdgeReading
    from .results.stability import Stability as Stability
    from .rng import Rng as Rng
    from .space import ParameterSpace as ParameterSpace
    from .step_stability import OptimizerState as OptimizerState
    from .step_stability import Preconditioned as Preconditioned
    from .step_stability import read_edge as read_edge
    from .step_stability import read_optimizer as read_optimizer
    from .step_stability import stability as stability
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
    return sorted({*globals(), *__all__})
