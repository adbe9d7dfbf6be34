"""Spectral densities: Lanczos and Chebyshev quadrature with an error estimate."""
