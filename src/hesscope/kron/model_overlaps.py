"""Top eigenspaces of independently trained models: their overlap, and what the factors predict (Section 5.3, G.3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from ..curvature import Problem
from ..errors import refuse
from ..linalg import eigenpairs
from ..measure import Array
from ..operators.autocast import own_types
from ..results.kronecker import ModelOverlap
from .factors import Decoupling, decouple
from .subspaces import check_k, nested_overlaps


@own_types()
def model_overlap(problems: Sequence[Problem], layer: str, *, k: int = 50, tol: float = 1e-3) -> ModelOverlap:
    """‖U_jᵀ V_j‖²/j for the top-j eigenspaces of the layer's Hessian in every pair of models, with the predictions.

    Costs k eigenpairs and one decoupling per model. Wu et al. (2022), Section 5.3, Theorem G.1 (in expectation).
    """
    if not isinstance(problems, Sequence):
        refuse("problems must be a list of at least two", f"{type(problems).__name__}", "Pass [one, another].")
    if len(problems) < 2:
        refuse("an overlap needs at least two models", f"{len(problems)}", "Train another one.")
    decoupled = [decouple(problem, layer) for problem in problems]
    shapes = [(len(d.output_hessian), len(d.input_autocorrelation)) for d in decoupled]
    if len(set(shapes)) > 1:
        refuse("the models must have the same shape in this layer", f"{shapes} in {layer!r}", "Compare equal layers.")
    m, n = shapes[0]
    check_k(k, m * n)
    true = [eigenpairs(d.exact, k=k, tol=tol).vectors.cpu().double() for d in decoupled]
    guesses = [d.eigenpairs(k)[1] for d in decoupled]
    tops = [torch.linalg.eigh(d.input_autocorrelation)[1][:, -1] for d in decoupled]
    pairs = tuple(combinations(range(len(problems)), 2))
    steps = np.minimum(np.arange(1, k + 1) / m, 1.0)
    reach = tuple(_reach(d) for d in decoupled)
    return ModelOverlap(
        layer,
        m,
        m * n,
        pairs,
        np.stack([nested_overlaps(true[i], true[j]) for i, j in pairs]),
        np.stack([permuted_overlaps(true[i], true[j], m) for i, j in pairs]),
        np.stack([steps * float(tops[i] @ tops[j]) ** 2 for i, j in pairs]),
        np.stack([nested_overlaps(guesses[i], guesses[j]) for i, j in pairs]),
        all(r == m for r in reach),
        reach,
        "; ".join(dict.fromkeys(d.exact.verified for d in decoupled)),
    )


@own_types()
def permuted_overlaps(u: Tensor, v: Tensor, m: int) -> Array:
    """E_π ‖U_jᵀ π V_j‖²/j over uniform permutations π of the m rows of Mat(v), for every j.

    With K = Mat(u) Mat(v)ᵀ, <u, π v> = Σ_i K_(i, π i), whose second moment is (1ᵀK1/m)² + ‖K centred on both
    sides‖²/(m - 1); the centred part factors into Gram matrices over the inputs.
    """
    left, right = (t.double().T.reshape(t.shape[1], m, -1) for t in (u, v))
    means = (left.sum(1) @ right.sum(1).T / m).square()
    total = means.cumsum(0).cumsum(1).diagonal().clone()
    if m > 1:
        grams = []
        for t in (left, right):
            centred = t - t.mean(1, keepdim=True)
            grams.append((centred.mT @ centred).cumsum(0))
        total += (grams[0] * grams[1]).sum((1, 2)) / (m - 1)
    return np.asarray(total / torch.arange(1, len(total) + 1, device="cpu"))


def _reach(d: Decoupling) -> int:
    """How many eigenvalues τ of E[M] satisfy τ γ₁ > τ₁ γ₂."""
    tau = torch.linalg.eigvalsh(d.output_hessian).flip(0)
    gamma = torch.linalg.eigvalsh(d.input_autocorrelation).flip(0)
    if len(gamma) < 2:
        return len(tau)
    return int((tau * gamma[0] > tau[0] * gamma[1]).sum())
