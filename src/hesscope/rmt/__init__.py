"""Limiting laws of random Hessians: NumPy and SciPy only, every law a `Measure`."""

from . import block_law, block_limits
from .fitting import Fit, fit
from .glm import GLM
from .marchenko_pastur import MarchenkoPastur
from .separable import GeneralisedMarchenkoPastur
from .softmax import SoftmaxGLM

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
