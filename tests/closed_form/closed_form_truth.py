"""The independent truth: dense double backward in float64; and what every closed-form spectrum must satisfy against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from hesscope.closed_form import ClosedFormSpectrum
from properties import examples

many = examples(200)
some = examples(100)
seeds = st.integers(0, 2**40)
scales = st.sampled_from([0.01, 0.3, 1.0, 1.0, 1.0, 30.0])


def tensor(a: ArrayLike) -> torch.Tensor:
    return torch.as_tensor(np.asarray(a, dtype=np.float64))


def double_backward(loss: Callable[..., torch.Tensor], parameters: Sequence[ArrayLike]) -> np.ndarray:
    """The dense Hessian over the parameters flattened in the order given, by one double backward.

    `loss` gets every parameter with a leading axis of n copies (one for each row of the Hessian) and returns the sum of
    the copies' losses; differentiating the i-th gradient entry of the i-th copy gives row i.
    """
    size = sum(np.size(p) for p in parameters)
    copies = [tensor(p).expand(size, *np.shape(p)).clone().requires_grad_() for p in parameters]
    first = torch.autograd.grad(loss(*copies), copies, create_graph=True)
    picked = torch.cat([g.reshape(size, -1) for g in first], dim=1).diagonal().sum()
    second = torch.autograd.grad(picked, copies, materialize_grads=True)
    return torch.cat([g.reshape(size, -1) for g in second], dim=1).numpy()


def check(
    spectrum: ClosedFormSpectrum, loss: Callable[..., torch.Tensor], parameters: Sequence[ArrayLike]
) -> np.ndarray:
    """Eigenvalues to 1e-10, eigenvectors to 1e-9, and every other member, against double backward."""
    truth = double_backward(loss, parameters)
    exact = np.linalg.eigvalsh(truth)
    norm = np.abs(exact).max()
    found = spectrum.eigenvalues
    assert tuple(shape for _, shape in spectrum.parameter_order) == tuple(np.shape(p) for p in parameters)
    assert found.shape == exact.shape == (spectrum.size,)
    assert np.all(np.diff(found) >= 0)
    assert np.abs(found - exact).max() <= 1e-10 * norm
    assert np.abs(spectrum.hessian() - truth).max() <= 1e-12 * norm
    assert abs(spectrum.trace - np.trace(truth)) <= 1e-11 * norm * spectrum.size
    vectors = spectrum.eigenvectors()
    assert np.abs(vectors.T @ vectors - np.eye(spectrum.size)).max() <= 1e-12
    assert np.linalg.norm(truth @ vectors - vectors * found, axis=0).max() <= 1e-9 * norm
    assert sum(b.multiplicity for b in spectrum.bulk) + spectrum.outliers.size == spectrum.size
    assert spectrum.sharpness == found[-1]
    smallest = np.abs(exact).min()
    if smallest > 1e-8 * norm:
        np.testing.assert_allclose(spectrum.condition_number, norm / smallest, rtol=1e-6)
    return truth
