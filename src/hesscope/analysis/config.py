"""The settings of an analysis; apart from it, so that the command line can show them without importing torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AnalyzeConfig:
    """What to measure, and how well."""

    k: int = 20
    """Large eigenvalues to resolve one by one."""
    smallest: int = 3
    """Eigenvalues to resolve at the negative end."""
    tol: float = 1e-3
    """Relative residual of an eigenpair."""
    probes: int = 10
    """Random vectors for the spectral density, at most."""
    steps: int = 80
    """Lanczos steps per random vector, at most."""
    trace_tol: float = 0.03
    """Relative standard error of the trace."""
    gauss_newton: bool = True
    """Split H = G + R where outputs and loss come apart."""
    block_maps: bool = True
    """Norms of the blocks by layer and, when there are few enough, by neuron."""
    most_blocks: int = 400
    """Finer maps with more blocks than this are left out."""
    most_products: int = 4000
    """Finer maps that take more products with the Hessian than this are left out."""
    per_layer: bool = True
    """Trace, top eigenvalue, norms and Kronecker error of every layer, in at most `most_products` products."""
    decouple: int = 8
    """Layers to compare with a Kronecker product, at most."""
    most_passes: int = 1000
    """Layers whose output Hessians take more backward passes per batch than this are left out of that (attention)."""
    landscape: bool = True
    """The loss along the top eigenvectors and down the gradient, beside its quadratic model."""
    fit: bool = False
    """Look for the limit law closest to the bulk (takes some seconds)."""
    check: bool = True
    """Check the derivatives on this model and data first."""
    seed: int = 0
    """Seed of every random vector."""
