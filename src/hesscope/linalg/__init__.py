"""Algorithms on any linear operator: eigenpairs, densities, traces, diagonals, norms, solves."""

from ..results.spectra import Eigenpairs as Eigenpairs
from ..results.spectra import Estimate as Estimate
from ..results.spectra import Solution as Solution
from ..results.spectra import SpectralDensity as SpectralDensity
from .density.spectrum import spectral_density as spectral_density
from .eigensolver import eigenpairs as eigenpairs
from .estimates.diagonals import diagonal as diagonal
from .estimates.diagonals import row_norms as row_norms
from .estimates.norms import frobenius_norm as frobenius_norm
from .estimates.norms import spectral_norm as spectral_norm
from .estimates.traces import trace as trace
from .linear_systems import solve as solve
