"""Algorithms on any linear operator: eigenpairs, densities, traces, diagonals, norms, solves."""

from .density import SpectralDensity as SpectralDensity
from .density import spectral_density as spectral_density
from .diagonal import diagonal as diagonal
from .diagonal import row_norms as row_norms
from .eigenpairs import Eigenpairs as Eigenpairs
from .eigenpairs import eigenpairs as eigenpairs
from .estimate import Estimate as Estimate
from .norms import frobenius_norm as frobenius_norm
from .norms import spectral_norm as spectral_norm
from .solve import Solution as Solution
from .solve import solve as solve
from .trace import trace as trace
