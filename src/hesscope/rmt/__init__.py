"""Limiting laws of random Hessians: NumPy and SciPy only, every law a `Measure`."""

from .separable import GeneralisedMarchenkoPastur

__all__ = ["GeneralisedMarchenkoPastur"]
