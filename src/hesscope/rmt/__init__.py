"""Limiting laws of random Hessians: NumPy and SciPy only, every law a `Measure`."""

from .fit import Fit, fit
from .glm import GLM
from .marchenko_pastur import MarchenkoPastur
from .separable import GeneralisedMarchenkoPastur
from .softmax import SoftmaxGLM

__all__ = ["GLM", "Fit", "GeneralisedMarchenkoPastur", "MarchenkoPastur", "SoftmaxGLM", "fit"]
