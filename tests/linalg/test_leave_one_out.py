"""The closed formulas for leaving out one probe, against doing it: a new QR for each probe."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from hesscope.linalg import diagonal, frobenius_norm, row_norms, trace
from hesscope.linalg.estimates.diagonals import _leave_one_out_diagonal, _leave_one_out_rows
from hesscope.linalg.estimates.sketch import Sketch
from hesscope.linalg.estimates.trace_estimators import XNysTrace, XTrace
from hesscope.operators import Counted, Dense, FromFunction
from hesscope.rng import Rng
from linalg.cases import Rotated, dense_of, network_like

N, M = 60, 7
MATRIX = dense_of(np.abs(network_like(N)) + 0.1)
A = MATRIX.numpy()


def operator() -> Counted:
    return Counted(Dense(MATRIX, symmetric=True))


def projectors(y: np.ndarray) -> list[np.ndarray]:
    bases = [np.linalg.qr(np.delete(y, i, axis=1))[0] for i in range(y.shape[1])]
    return [q @ q.T for q in bases]


def test_xtrace() -> None:
    estimator = XTrace(operator(), Rng(0))
    estimator.grow(4)
    estimator.grow(M - 4)
    omega = estimator.sketch.omega.numpy()
    expected = []
    for i, p in enumerate(projectors(A @ omega)):
        rest = omega[:, i] - p @ omega[:, i]
        expected.append(np.trace(p @ A) + (N - M + 1) * rest @ A @ rest / (rest @ rest))
    assert estimator.estimate()[0] == pytest.approx(np.mean(expected), rel=1e-10)


def test_xnystrace() -> None:
    estimator = XNysTrace(operator(), Rng(0))
    estimator.grow(M)
    omega = estimator.omega.numpy()
    expected = []
    for i in range(M):
        others = np.delete(omega, i, axis=1)
        nystrom = A @ others @ np.linalg.inv(others.T @ A @ others) @ others.T @ A
        rest = omega[:, i] - others @ np.linalg.lstsq(others, omega[:, i], rcond=None)[0]
        expected.append(np.trace(nystrom) + (N - M + 1) * rest @ (A - nystrom) @ rest / (rest @ rest))
    assert estimator.estimate()[0] == pytest.approx(np.mean(expected), rel=1e-9)


def test_diagonal_and_row_norms() -> None:
    sketch = Sketch(operator(), "rademacher", Rng(0))
    sketch.grow(4)
    sketch.grow(M - 4)
    omega = sketch.omega.numpy()
    diagonals, squares = [], []
    for i, p in enumerate(projectors(A @ omega)):
        rest = omega[:, i] - p @ omega[:, i]
        diagonals.append(np.diag(p @ A) + omega[:, i] * ((np.eye(N) - p) @ A @ omega[:, i]))
        squares.append(np.diag(A @ p @ A) + (A @ rest) ** 2)
    np.testing.assert_allclose(_leave_one_out_diagonal(sketch)[0], np.mean(diagonals, axis=0), rtol=1e-9)
    rows = np.sqrt(np.maximum(np.mean(squares, axis=0), 0))
    np.testing.assert_allclose(_leave_one_out_rows(sketch)[0], rows, rtol=1e-9)


@pytest.mark.parametrize("method", ["xtrace", "xnystrace"])
def test_multiples_of_the_identity_are_exact(method: str) -> None:
    """The rescaled remainder of a probe then carries exactly the trace that the sketch does not."""
    found = trace(Rotated(np.full(300, 2.5)), 1e-6, method=method)
    assert found.value == pytest.approx(750, rel=1e-9)
    assert found.products <= 20
    assert frobenius_norm(Rotated(np.full(300, -2.0))).value == pytest.approx(2 * 300**0.5, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_entries_with_the_signs_of_a_dominating_one_are_as_unsure_as_they_are(seed: int) -> None:
    """Of ten probes, one in 512 entries has the signs of the largest, and seems to be nothing beside it."""
    entries = torch.full((2100,), 0.01, dtype=torch.float64)
    entries[0] = 1e4
    found = diagonal(FromFunction(lambda v: entries * v, 2100), 0.05, rng=seed)
    gaps = np.abs(found.value - entries.numpy())
    assert found.products == 20
    assert gaps.max() > 0.005
    assert (gaps <= 5 * found.stderr).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_signs_that_agree_on_a_small_matrix_do_not_pass_for_all_of_its_range(sign: float) -> None:
    """Two random signs are the same or opposite in two entries every other time: their images are then dependent."""
    matrix = torch.zeros(300, 300, dtype=torch.float64)
    matrix[3, 3] = matrix[7, 7] = 0.5
    matrix[3, 7] = matrix[7, 3] = sign * 1.5
    op = FromFunction(lambda v: matrix @ v, 300)
    for seed in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = diagonal(op, max_products=4, rng=seed), row_norms(op, max_products=4, rng=seed)
            total = trace(op, method="hutch++", max_products=6, rng=seed)
        wanted = matrix.diagonal(), torch.linalg.vector_norm(matrix, dim=1)
        for estimate, truth in zip(found, wanted, strict=True):
            if estimate.exact:
                np.testing.assert_allclose(estimate.value, truth.numpy(), atol=1e-12)
        if total.exact:
            assert float(total) == pytest.approx(1.0, abs=1e-12)
