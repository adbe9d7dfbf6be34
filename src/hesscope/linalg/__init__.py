"""Algorithms on any linear operator: eigenpairs, densities, traces, diagonals, norms, solves."""

from .density import SpectralDensity as SpectralDensity
from .density import spectral_density as spectral_density
from .eigenpairs import Eigenpairs as Eigenpairs
from .eigenpairs import eigenpairs as eigenpairs
from .estimate import Estimate as Estimate
from .trace import trace as trace
