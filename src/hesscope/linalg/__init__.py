"""Algorithms on any linear operator: eigenpairs, densities, traces, diagonals, norms, solves."""

from ..results.spectra import Eigenpairs as Eigenpairs
from ..results.spectra import Estimate as Estimate
from ..results.spectra import Solution as Solution
from ..results.spectra import SpectralDensity as SpectralDensity
from .density.spectrum import spectral_density as spectral_density
from .diagonals import diagonal as diagonal
from .diagonals import row_norms as row_norms
from .eigensolver import eigenpairs as eigenpairs
from .linear_systems import solve as solve
from .norms import frobenius_norm as frobenius_norm
from .norms import spectral_norm as spectral_norm
from .traces import trace as trace
