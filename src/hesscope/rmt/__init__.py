"""Limiting laws of random Hessians: NumPy and SciPy only, every law a `Measure`."""

from .blocks import limits as block_limits
from .blocks import spectra as block_law
from .glm.model import GLM
from .glm.softmax import SoftmaxGLM
from .laws.fitting import Fit, fit
from .laws.marchenko_pastur import MarchenkoPastur
from .separable.law import GeneralisedMarchenkoPastur

__all__ = [
    "GLM",
    "Fit",
    "GeneralisedMarchenkoPastur",
    "MarchenkoPastur",
    "SoftmaxGLM",
    "block_law",
    "block_limits",
    "fit",
]
