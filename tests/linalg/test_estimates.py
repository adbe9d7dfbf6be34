"""Traces, diagonals and norms: right, calibrated, stopped by tolerance, exact where that is cheap."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hesscope.errors import BudgetExceeded, InputError
from hesscope.linalg import Estimate, diagonal, frobenius_norm, row_norms, spectral_norm, trace
from hesscope.linalg.estimates.estimate import mean_and_stderr, mean_of_forms, root_stderr, squares_stderr
from hesscope.operators import Counted, Dense, LinearOperator
from hesscope.rng import Rng
from linalg.cases import Rotated, dense_of, network_like

DECAYING = 0.9 ** np.arange(400)
INDEFINITE = network_like(400)
FLAT = np.abs(np.random.default_rng(0).standard_normal(400))


@pytest.mark.parametrize("method", ["hutchinson", "hutch++", "xtrace", "xnystrace"])
@pytest.mark.parametrize(("values", "tol"), [(DECAYING, 0.1), (FLAT, 0.03)])
def test_trace_errors_are_calibrated_under_stopping(method: str, values: np.ndarray, tol: float) -> None:
    op = Dense(dense_of(values), symmetric=True)
    scores = []
    for seed in range(200):
        found = trace(op, tol, method=method, max_products=5000, rng=Rng(seed))
        assert found.stderr <= tol * abs(found.value)
        scores.append((found.value - values.sum()) / found.stderr)
    inside = np.mean(np.abs(scores) <= 2.3)
    # 95 % of 200 has a standard deviation of 1.5 %.
    assert inside >= 0.95 - 0.03
    # Not so cautious that the number says nothing: an error bar twice too long would give 0.5.
    assert 0.6 <= np.std(scores) <= 1.25
    assert abs(np.mean(scores)) <= 0.5


def test_xtrace_on_an_indefinite_spectrum_with_outliers() -> None:
    op = Dense(dense_of(INDEFINITE), symmetric=True)
    found = (trace(op, 0.05, method="xtrace", rng=Rng(s)) for s in range(100))
    scores = [(e.value - INDEFINITE.sum()) / e.stderr for e in found]
    assert np.mean(np.abs(scores) <= 2.3) >= 0.92


def test_xtrace_needs_far_fewer_products_than_hutchinson() -> None:
    op = Dense(dense_of(DECAYING), symmetric=True)
    fast, slow = trace(op, 0.02, method="xtrace"), trace(op, 0.02, method="hutchinson", max_products=10_000)
    assert 4 * fast.products <= slow.products


@pytest.mark.parametrize("method", ["hutch++", "xtrace", "xnystrace"])
def test_low_rank_traces_are_exact(method: str) -> None:
    values = np.concatenate([[3.0, 2.0, 0.5], np.zeros(497)])
    found = trace(Rotated(values), 1e-6, method=method)
    assert found.value == pytest.approx(5.5, rel=1e-9)
    assert found.stderr <= 1e-9
    assert found.products <= 30


def test_the_zero_operator_has_zero_everything() -> None:
    op = Rotated(np.zeros(300))
    assert trace(op).value == 0
    assert frobenius_norm(op).value == 0
    assert spectral_norm(op).value == 0
    assert (diagonal(op).value == 0).all()
    assert (row_norms(op).value == 0).all()


def test_small_operators_are_exact_in_n_products() -> None:
    matrix = dense_of(network_like(120))
    op = Dense(matrix)
    truths = {
        trace: float(torch.trace(matrix)),
        diagonal: torch.diagonal(matrix).numpy(),
        row_norms: torch.linalg.vector_norm(matrix, dim=1).numpy(),
        frobenius_norm: float(torch.linalg.matrix_norm(matrix)),
        spectral_norm: float(torch.linalg.matrix_norm(matrix, 2)),
    }
    for function, truth in truths.items():
        found = function(op)
        np.testing.assert_allclose(found.value, truth, rtol=1e-10)
        assert found.exact
        assert found.products == 120


@pytest.mark.parametrize("method", ["hutchinson", "hutch++", "xtrace"])
def test_a_matrix_of_fewer_rows_than_probes_is_multiplied_out(method: str) -> None:
    """Two probes of a matrix of five rows were all that its budget bought, and their spread is no error bar."""
    matrix = dense_of(np.array([2.0, 1.0, 0.3, -0.1, -0.4]))
    found = trace(Dense(matrix, symmetric=True), 0.2, method=method)
    assert found.exact
    assert found.products == 5
    assert found.value == pytest.approx(2.8, rel=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not trace(Dense(matrix, symmetric=True), 0.2, method="hutchinson", max_products=4).exact


@pytest.mark.parametrize("count", [2, 3, 4, 8, 20])
def test_means_of_few_samples_lie_within_two_standard_errors(count: int) -> None:
    samples = np.random.default_rng(count).standard_normal((4000, count))
    found = np.array([mean_and_stderr(row) for row in samples])
    inside = float(np.mean(np.abs(found[:, 0]) <= 2 * found[:, 1]))
    assert abs(inside - 0.9545) <= 4 * np.sqrt(0.9545 * 0.0455 / 4000)


@pytest.mark.parametrize("values", [DECAYING, INDEFINITE, FLAT])
@pytest.mark.parametrize("function", [diagonal, row_norms])
def test_vector_estimates_meet_their_tolerance(function: Callable[..., Any], values: np.ndarray) -> None:
    matrix = dense_of(values)
    truth = torch.diagonal(matrix) if function is diagonal else torch.linalg.vector_norm(matrix, dim=1)
    errors, stderrs = [], []
    for seed in range(5):
        found = function(Dense(matrix, symmetric=True), 0.1, max_products=2000, rng=Rng(seed))
        errors.append(np.linalg.norm(found.value - truth.numpy()))
        stderrs.append(np.linalg.norm(found.stderr))
        assert stderrs[-1] <= 0.1 * np.linalg.norm(found.value)
    assert 0.3 <= np.mean(errors) / np.mean(stderrs) <= 1.3


def test_diagonal_entries_are_calibrated() -> None:
    matrix = dense_of(FLAT[:300])
    scores = [
        (found.value - torch.diagonal(matrix).numpy()) / found.stderr
        for found in (diagonal(Dense(matrix, symmetric=True), 0.1, rng=Rng(s)) for s in range(8))
    ]
    assert np.mean(np.abs(scores) <= 2.3) >= 0.93
    assert np.abs(np.mean(scores, axis=0)).mean() < 0.5


@pytest.mark.parametrize("values", [DECAYING, INDEFINITE, FLAT])
def test_frobenius_norm(values: np.ndarray) -> None:
    op = Dense(dense_of(values), symmetric=True)
    truth = float(np.linalg.norm(values))
    for seed in range(10):
        found = frobenius_norm(op, 0.02, max_products=2000, rng=Rng(seed))
        assert found.stderr <= 0.02 * found.value
        assert abs(found.value - truth) <= 4 * found.stderr


def test_norms_of_a_general_matrix() -> None:
    matrix = torch.randn(250, 400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = frobenius_norm(Dense(matrix), 0.01)
    assert abs(found.value - float(torch.linalg.matrix_norm(matrix))) <= 4 * found.stderr
    found = spectral_norm(Dense(matrix), 1e-4)
    assert found.value == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), rel=1e-6)


def test_spectral_norm_sees_the_negative_end() -> None:
    values = np.concatenate([np.linspace(-0.5, 1, 500), [-3.0, 2.0]])
    found = spectral_norm(Rotated(values))
    assert found.value == pytest.approx(3.0, rel=1e-5)
    assert abs(found.value - 3.0) <= found.stderr


class Knowing(Rotated):
    """An operator that knows its trace and diagonal, or declines."""

    answer: Estimate | None = Estimate(7.0, 0.0, 1, "known", exact=True)

    def known_trace(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        return self.answer

    def known_diagonal(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        return self.answer


def test_what_the_operator_knows_comes_first() -> None:
    op = Knowing(DECAYING)
    assert trace(Counted(op)).method == "known"
    assert diagonal(op).method == "known"
    assert trace(op, method="xtrace").method == "xtrace"
    op.answer = None
    assert trace(op).method == "xtrace"


def test_a_missed_tolerance_is_warned_about() -> None:
    op = Rotated(DECAYING)
    with pytest.warns(UserWarning, match="Raise max_products"):
        found = trace(op, 1e-9, method="hutchinson", max_products=30)
    assert found.products <= 30
    with pytest.warns(UserWarning, match="Raise max_products"):
        diagonal(op, 1e-9, max_products=30)


def test_the_same_seed_gives_the_same_number() -> None:
    first, second, other = (trace(Rotated(DECAYING), rng=Rng(s)).value for s in (1, 1, 2))
    assert first == second != other


def test_float32_is_enough_for_one_per_cent() -> None:
    found = trace(Rotated(np.concatenate([INDEFINITE + 0.05, np.full(600, 0.01)]), torch.float32), 0.01)
    assert abs(found.value - (INDEFINITE.sum() + 20 + 6)) <= 4 * found.stderr


@pytest.mark.parametrize("function", [trace, diagonal, row_norms, frobenius_norm, spectral_norm])
def test_refusals(function: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="tol must be > 0"):
        function(Rotated(DECAYING), tol=0.0)
    with pytest.raises(InputError, match=r"products of .*Rotated\(300, 300\).* must be finite"):
        function(Rotated(np.concatenate([[np.nan], np.ones(299)])))
    with pytest.raises(BudgetExceeded):
        function(Counted(Rotated(FLAT), budget=5))


@pytest.mark.parametrize("function", [trace, diagonal, row_norms])
def test_general_matrices_are_refused(function: Callable[..., Any]) -> None:
    general = torch.randn(300, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(InputError, match="symmetric operator"):
        function(Dense(general))
    with pytest.raises(InputError, match="differ by"):
        function(Dense(general, symmetric=True))


def test_xnystrace_refuses_negative_curvature() -> None:
    with pytest.raises(InputError, match="positive semi-definite"):
        trace(Rotated(np.linspace(-1, 1, 400)), method="xnystrace")
    with pytest.raises(InputError, match="method must be one of"):
        trace(Rotated(DECAYING), method="xtrase")


def test_results_survive_saving(tmp_path: Path) -> None:
    found = diagonal(Rotated(DECAYING[:50]))
    back = Estimate.load(found.save(tmp_path / "diagonal"))
    np.testing.assert_array_equal(back.value, found.value)
    assert float(trace(Rotated(DECAYING[:50]))) == pytest.approx(DECAYING[:50].sum())


def test_the_case_operator_is_what_it_claims() -> None:
    op: LinearOperator = Rotated(INDEFINITE)
    np.testing.assert_allclose(np.linalg.eigvalsh(op.dense().numpy()), np.sort(INDEFINITE), atol=1e-12)


@pytest.mark.parametrize("limit", [5, 40, 130])
@pytest.mark.parametrize("size", [150, 900])
def test_budgets_hold_whatever_the_way(size: int, limit: int) -> None:
    op = Counted(Rotated(network_like(size)))
    for work in (
        lambda: trace(op, 1e-9, max_products=limit),
        lambda: diagonal(op, 1e-9, max_products=limit),
        lambda: row_norms(op, 1e-9, max_products=limit),
        lambda: frobenius_norm(op, 1e-9, max_products=limit),
        lambda: spectral_norm(op, 1e-12, max_products=limit),
    ):
        before = op.count
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = work()
        assert 0 < found.products == op.count - before <= limit


def test_budgets_that_buy_no_error_are_refused() -> None:
    op = Rotated(network_like(300))
    with pytest.raises(InputError, match="max_products must be a whole number >= 4 for xtrace"):
        trace(op, max_products=3)
    with pytest.raises(InputError, match="max_products must be a whole number >= 4"):
        diagonal(op, max_products=2)
    with pytest.raises(InputError, match="max_products must be a whole number"):
        trace(op, max_products=2.5)


STEEP = 1 / np.arange(1.0, 301) ** 2


@pytest.mark.parametrize("limit", [12, 40])
@pytest.mark.parametrize(
    "values", [DECAYING[:300], STEEP, FLAT[:300], network_like(300)], ids=["0.9^k", "1/k²", "flat", "net"]
)
def test_row_norms_lie_within_two_standard_errors(values: np.ndarray, limit: int) -> None:
    matrix = dense_of(values)
    truth = torch.linalg.vector_norm(matrix, dim=1).numpy()
    inside = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(60):  # of 300 rows each
            found = row_norms(Dense(matrix, symmetric=True), 1e-9, max_products=limit, rng=seed)
            inside.append(np.abs(found.value - truth) <= 2 * found.stderr)
    assert np.mean(inside) >= 0.9


@pytest.mark.parametrize("probes", [2, 3, 4, 8, 16])
@pytest.mark.parametrize(
    "values", [np.eye(1, 50)[0], 1 / np.arange(1.0, 51) ** 2, 0.8 ** np.arange(50.0), np.linspace(-1, 1, 50)]
)
def test_means_of_squares_lie_within_two_standard_errors(values: np.ndarray, probes: int) -> None:
    matrix, draws = dense_of(values), 2000
    signs = torch.randint(0, 2, (50, draws * probes), generator=Rng(probes).torch()).double() * 2 - 1
    samples = (matrix @ signs).square().sum(0).view(draws, probes)
    mean = samples.mean(-1)
    stderr = squares_stderr(mean, samples.var(-1), probes, probes - 1)
    root, truth = mean.sqrt(), float(torch.linalg.matrix_norm(matrix))
    inside = float(((root - truth).abs() <= 2 * root_stderr(stderr, root)).double().mean())
    assert inside >= 0.9
    assert inside < 1.0  # an error bar that always covers would say nothing


SPIKE, HALVES = np.concatenate([[1e5], np.ones(299)]), 0.5 ** np.arange(300.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("values", "width"), [(SPIKE, 6), (HALVES, 20), (network_like(300), 6)], ids=["spike", "halves", "net"]
)
def test_what_one_eigenvalue_carries_is_as_sure_as_it_says(
    values: np.ndarray, width: float, dtype: torch.dtype
) -> None:
    """Relative errors are 1e-9 and less here; rounding of products in float32 is far above."""
    matrix = dense_of(values).to(dtype)
    norm, total = float(torch.linalg.matrix_norm(matrix.double())), float(matrix.double().trace())
    scores: dict[str, list[float]] = {"norm": [], "xnystrace": [], "xtrace": []}
    op = Dense(matrix, symmetric=True)
    psd = Dense(matrix.double() @ matrix.double(), symmetric=True) if (values < 0).any() else op
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(30):
            found = frobenius_norm(op, 0.01, max_products=40, rng=seed)
            scores["norm"].append((found.value - norm) / found.stderr)
            found = trace(op, 0.01, method="xtrace", max_products=40, rng=seed)
            scores["xtrace"].append((found.value - total) / found.stderr)
            found = trace(psd, 0.01, method="xnystrace", max_products=40, rng=seed)
            scores["xnystrace"].append((found.value - (total if psd is op else norm**2)) / found.stderr)
    for name, found_scores in scores.items():
        assert np.max(np.abs(found_scores)) <= 4, name
        if dtype is torch.float64 or values is not SPIKE:  # else rounding is most of it
            assert np.sqrt(np.mean(np.square(found_scores))) >= 1 / width, name


@pytest.mark.parametrize("count", [20, 40])
def test_means_of_skewed_forms_lie_within_four_standard_errors(count: int) -> None:
    """Forms of rank one: squares of normal numbers, of which 2 % (20) and 0.9 % (40) lay outside without their skewness."""
    samples = np.random.default_rng(count).standard_normal((4000, count)) ** 2
    found = np.array([mean_of_forms(row) for row in samples])
    assert np.mean(np.abs(found[:, 0] - 1) > 4 * found[:, 1]) <= 0.0075
    plain = np.array([mean_of_forms(row) for row in np.random.default_rng(count).standard_normal((4000, count))])
    assert np.mean(plain[:, 1]) * np.sqrt(count) <= 1.3  # of forms that are normal hardly wider


@pytest.mark.parametrize("probes", [2, 5])
def test_row_norms_by_few_probes_are_as_unsure_as_they_are(probes: int) -> None:
    """What one eigenvector leaves to all rows is short in all of them at once."""
    op = Rotated(np.exp(-np.arange(300) / 3))
    vectors = op.eigenvectors()
    truth = torch.linalg.vector_norm(vectors * op.values @ vectors.T, dim=1).numpy()
    beyond = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(60):
            found = row_norms(op, 1e-9, max_products=2 * probes, rng=seed)
            beyond.append(np.mean(np.abs(found.value - truth) > 4 * found.stderr))
    assert np.mean(beyond) < 2e-3
