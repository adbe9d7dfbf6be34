"""Eigenpairs against known spectra: ends, multiplicities, breakdowns, restarts, precision and refusals."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hesscope.errors import BudgetExceeded, InputError
from hesscope.linalg import Eigenpairs, eigenpairs, eigensolver, frobenius_norm, trace
from hesscope.linalg.krylov.multiplicity import LUCK, ruled_out
from hesscope.linalg.krylov.room import room_on_disk
from hesscope.operators import Counted, Dense
from hesscope.rng import Rng
from linalg.cases import Rotated, dense_of, network_like
from properties import examples


def true_residuals(op: Rotated, found: Eigenpairs) -> np.ndarray:
    gap = op @ found.vectors - found.vectors * torch.as_tensor(found.values, dtype=op.dtype)
    return torch.linalg.vector_norm(gap.double(), dim=0).numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_ten_of_a_network_like_spectrum_takes_few_products(dtype: torch.dtype) -> None:
    values = network_like(5000)
    found = eigenpairs(Rotated(values, dtype), k=10)
    truth = np.sort(values)[::-1][:10]
    np.testing.assert_allclose(found.values, truth, rtol=2e-6)
    assert found.converged.all()
    assert found.products <= 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reported_residuals_are_the_true_ones(dtype: torch.dtype) -> None:
    op = Rotated(network_like(3000), dtype)
    found = eigenpairs(op, k=12)
    true = true_residuals(op, found)
    # A residual is a bound on the error of its eigenvalue, so it may not be understated.
    assert (true <= 1.05 * found.residuals + 1e-14 * 10).all()
    assert (found.residuals <= 1e-3 * found.values).all()
    assert found.residuals.max() <= 1.05 * true.max() + 1e-4 * 10 * (dtype == torch.float32)


@pytest.mark.parametrize("which", ["largest", "smallest", "both", "magnitude"])
def test_both_ends_agree_with_dense_eigh(which: str) -> None:
    matrix = dense_of(np.concatenate([network_like(400), [-7.0, -3.0, -0.5]]))
    truth = np.linalg.eigvalsh(matrix.numpy())
    found = eigenpairs(Dense(matrix), k=6, which=which, tol=1e-6)
    expected = {
        "largest": truth[::-1][:6],
        "smallest": truth[:6],
        "both": np.concatenate([truth[::-1][:6], truth[:6]]),
        "magnitude": truth[np.argsort(-np.abs(truth))][:6],
    }[which]
    np.testing.assert_allclose(found.values, expected, rtol=1e-9, atol=1e-10)
    gram = found.vectors.T @ found.vectors
    assert torch.allclose(gram, torch.eye(gram.shape[0], dtype=gram.dtype), atol=1e-10)


@pytest.mark.parametrize("block", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_every_copy_of_a_multiple_eigenvalue_is_found(block: int, seed: int) -> None:
    values = np.concatenate([[9.0, 9.0, 9.0, 6.0, 4.0, 4.0], network_like(1500, seed)[9:] * 0.5])
    found = eigenpairs(Rotated(values, seed=seed), k=7, block=block, rng=Rng(seed))
    np.testing.assert_allclose(found.values, np.sort(values)[::-1][:7], rtol=1e-5)


def test_copies_are_overlooked_no_more_often_than_promised() -> None:
    """A double eigenvalue next to the last one wanted; the promise is a chance of 1.6 % each."""
    values = np.concatenate([network_like(400), [1.6]])
    wrong = 0
    for seed in range(60):
        found = eigenpairs(Rotated(values, seed=seed), k=10, rng=Rng(seed))
        wrong += not np.allclose(found.values[-2:], 1.6, rtol=1e-4)
    assert wrong <= 3


def test_the_certificate_of_a_probe_is_sharp() -> None:
    """A measure with an atom of mass w at μ is never said to have less there; one without it soon is."""
    x, w = np.linspace(-1, 1, 200), 1e-4
    for top, missed in ((2.0, True), (1.0, False)):
        nodes = np.append(x, top)
        masses = np.append(np.full(200, (1 - w) / 200), w)
        basis = np.zeros((201, 12))
        basis[:, 0] = np.sqrt(masses)
        alpha, beta = np.zeros(11), np.zeros(11)
        for j in range(11):
            image = nodes * basis[:, j]
            alpha[j] = basis[:, j] @ image
            for _ in range(2):
                image -= basis[:, : j + 1] @ (basis[:, : j + 1].T @ image)
            beta[j] = np.linalg.norm(image)
            basis[:, j + 1] = image / beta[j]
        size = LUCK**2 / w
        verdicts = [ruled_out(alpha[:s], beta[:s], 1.9, size) for s in range(1, 12)]
        assert any(verdicts) is not missed
        assert missed or 2 < verdicts.index(True) < 8


@pytest.mark.parametrize("seed", range(4))
def test_copies_at_both_ends_are_found(seed: int) -> None:
    values = np.concatenate([[5.0, 5.0, 3.0], [-4.0, -4.0, -2.0], np.linspace(-0.5, 0.5, 800)])
    found = eigenpairs(Rotated(values, seed=seed), k=3, which="both", rng=Rng(seed))
    np.testing.assert_allclose(found.values, [5, 5, 3, -4, -4, -2], rtol=1e-5)


def test_an_eigenvalue_of_huge_multiplicity() -> None:
    found = eigenpairs(Rotated(np.repeat([1.0, 0.0], 300)), k=5)
    np.testing.assert_allclose(found.values, np.ones(5), rtol=1e-12)


def test_the_zero_operator() -> None:
    found = eigenpairs(Rotated(np.zeros(500)), k=4, which="both")
    np.testing.assert_array_equal(found.values, np.zeros(8))
    assert found.converged.all()
    assert torch.allclose(found.vectors.T @ found.vectors, torch.eye(8, dtype=torch.float64), atol=1e-12)


def test_low_rank_gives_exact_zeros_beyond_its_rank() -> None:
    values = np.concatenate([[3.0, 2.0, 1.0], np.zeros(600)])
    found = eigenpairs(Rotated(values), k=6)
    np.testing.assert_allclose(found.values, [3, 2, 1, 0, 0, 0], atol=1e-12)
    assert found.converged.all()


@pytest.mark.parametrize("n", [1, 2, 7, 150])
def test_small_problems_are_exact_and_k_is_at_most_n(n: int) -> None:
    values = np.linspace(-1, 2, n)
    found = eigenpairs(Rotated(values), k=200)
    np.testing.assert_allclose(found.values, values[::-1], atol=1e-13)
    assert found.products == n


def test_all_pairs_by_lanczos_itself() -> None:
    from hesscope.linalg.krylov.run import Goal, KrylovRun

    values = np.concatenate([np.linspace(-1, 1, 40), [1.0, 1.0]])
    run = KrylovRun(Counted(Rotated(values)), Goal(42, "largest", 1e-8), 1, 1000, Rng(0))
    run.run(None, 500)
    np.testing.assert_allclose(run.wanted()[0], np.sort(values)[::-1], atol=1e-10)


def test_thick_restart_reaches_the_same_values_within_its_memory() -> None:
    op = Rotated(network_like(3000))
    free, tight = eigenpairs(op, k=20, tol=1e-5), eigenpairs(op, k=20, tol=1e-5, max_basis=40)
    np.testing.assert_allclose(tight.values, free.values, rtol=1e-7)
    assert tight.converged.all()
    assert free.products <= tight.products <= 3 * free.products


def test_restart_keeps_the_basis_within_its_limit() -> None:
    from hesscope.linalg.krylov.run import Goal, KrylovRun

    run = KrylovRun(Counted(Rotated(network_like(3000))), Goal(8, "both", 1e-4), 2, 40, Rng(0))
    run.run(None, 2000)
    assert run.wanted()[3].all()
    assert run.products > 60
    assert run.basis.rows.shape[0] <= 60
    assert len(run.basis.names) <= 40


def test_a_basis_that_memory_does_not_hold_is_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    op = Rotated(network_like(3000))
    truth = eigenpairs(op, k=2, max_basis=7)
    rooms = []

    def watched(*given: Any) -> Any:
        rooms.append(room_on_disk(*given))
        return rooms[-1]

    monkeypatch.setattr(eigensolver, "vectors_that_fit", lambda op: 3)
    monkeypatch.setattr(eigensolver, "room_on_disk", watched)
    found = eigenpairs(op, k=2)
    assert rooms[0].is_shared()
    assert rooms[0].shape == (7, 3000)
    assert found.products == truth.products > 7  # with restarts
    np.testing.assert_allclose(found.values, truth.values, rtol=1e-9)
    assert true_residuals(op, found).max() <= 1e-3 * found.values[0]
    with pytest.raises(BudgetExceeded):
        eigenpairs(Counted(op, budget=9), k=2, resume=tmp_path / "state")
    again = eigenpairs(op, k=2, resume=tmp_path / "state")
    np.testing.assert_array_equal(again.values, found.values)
    # Who names a basis gets it in memory; so does who has no disk.
    eigenpairs(op, k=2, max_basis=7)
    assert len(rooms) == 3
    monkeypatch.setattr(eigensolver, "room_on_disk", lambda *given: None)
    np.testing.assert_allclose(eigenpairs(op, k=2).values, truth.values, rtol=1e-9)


def test_memory_that_shrinks_while_it_is_asked_for_sends_nothing_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another program takes some of it between one look and the next.
    free = iter(range(1_000_000, 0, -1))
    rooms: list[Any] = []
    monkeypatch.setattr(eigensolver, "vectors_that_fit", lambda op: next(free))
    monkeypatch.setattr(eigensolver, "room_on_disk", lambda *given: rooms.append(given))
    eigenpairs(Rotated(network_like(1500)), k=2)
    assert not rooms


def test_non_convergence_is_marked_and_warned_about() -> None:
    op = Rotated(network_like(3000))
    with pytest.warns(UserWarning, match="did not converge after 15 products"):
        found = eigenpairs(op, k=10, max_products=15)
    assert found.products == 15
    assert found.converged[0]
    assert not found.converged[-1]


def test_a_probe_that_was_cut_off_is_warned_about() -> None:
    op = Rotated(network_like(3000))
    needed = eigenpairs(op, k=10).products
    with pytest.warns(UserWarning, match="copies of multiple eigenvalues were not ruled out") as caught:
        found = eigenpairs(op, k=10, max_products=needed - 1)
    assert found.converged.all()
    assert caught[0].filename == __file__


def test_noise_above_the_tolerance_is_marked_and_warned_about() -> None:
    class Noisy(Rotated):
        calls = 0

        def _apply(self, block: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            noise = torch.randn(block.shape, generator=torch.Generator().manual_seed(self.calls), dtype=block.dtype)
            return super()._apply(block) + 1e-3 * noise

    with pytest.warns(UserWarning, match="only accurate to"):
        found = eigenpairs(Noisy(network_like(2000)), k=3, tol=1e-6, max_products=400)
    assert not found.converged.any()


@pytest.mark.parametrize(("distance", "saved"), [(2e-4, 5), (0.1, -2)])
def test_warm_starts_save_products_when_close_and_cost_nothing_when_not(distance: float, saved: int) -> None:
    op = Rotated(network_like(4000))
    cold = eigenpairs(op, k=10)
    near = eigenpairs(op, k=10, tol=1e-6).vectors
    noise = torch.randn(near.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    warm = eigenpairs(op, k=10, start=near + distance * noise / 4000**0.5)
    np.testing.assert_allclose(warm.values, cold.values, rtol=1e-5)
    assert warm.products <= cold.products - saved


def test_a_start_inside_an_invariant_subspace_does_not_hide_the_rest() -> None:
    values = np.concatenate([[5.0, 4.0, 3.0, 3.0], np.linspace(-1, 1, 500)])
    op = Rotated(values)
    wrong = op.eigenvectors()[:, 4:8]
    np.testing.assert_allclose(eigenpairs(op, k=4, start=wrong).values, [5, 4, 3, 3], rtol=1e-5)


def test_the_same_seed_gives_the_same_bits() -> None:
    op = Rotated(network_like(1000))
    first, second, other = (eigenpairs(op, k=5, rng=Rng(s)) for s in (1, 1, 2))
    assert torch.equal(first.vectors, second.vectors)
    assert not torch.equal(first.vectors, other.vectors)


def test_budget_and_progress() -> None:
    seen: list[int] = []
    counted = Counted(Rotated(network_like(1000)), on_product=lambda count, _: seen.append(count))
    found = eigenpairs(counted, k=5)
    assert seen[-1] == counted.count == found.products
    with pytest.raises(BudgetExceeded):
        eigenpairs(Counted(Rotated(network_like(1000)), budget=7), k=5)


def test_results_survive_saving(tmp_path: Path) -> None:
    found = eigenpairs(Rotated(network_like(500)), k=3)
    back = Eigenpairs.load(found.save(tmp_path / "pairs"))
    np.testing.assert_array_equal(back.values, found.values)
    np.testing.assert_array_equal(back.vectors, found.vectors.numpy())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be >= 1"),
        ({"tol": 0.0}, "tol must be > 0"),
        ({"which": "lowest"}, "which must be"),
        ({"block": 0}, "block must be >= 1"),
        ({"k": 10, "max_basis": 5}, "max_basis must be >= 14"),
        ({"start": torch.zeros(3, 1)}, "start must have shape"),
        ({"max_products": 0}, "max_products must be >= 1"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        eigenpairs(Rotated(network_like(600)), **arguments)


def test_operators_that_cannot_be_used_are_refused_by_name() -> None:
    general = torch.randn(300, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(InputError, match=r"symmetric operator; got Dense\(300, 300\)"):
        eigenpairs(Dense(general), k=2)
    with pytest.raises(InputError, match="products differ by"):
        eigenpairs(Dense(general, symmetric=True), k=2)
    with pytest.raises(InputError, match=r"products of Rotated\(500, 500\) must be finite"):
        eigenpairs(Rotated(np.concatenate([[np.nan], np.ones(499)])), k=2)
    with pytest.raises(InputError, match=r"products of Rotated\(50, 50\) must be finite"):
        eigenpairs(Rotated(np.full(50, np.inf)), k=2)
    with pytest.raises(InputError, match="float32 or float64"):
        eigenpairs(Dense(torch.eye(4, dtype=torch.float16)), k=2)


@examples(60)
@given(
    st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 8.0]), min_size=1, max_size=60),
    st.integers(1, 6),
    st.sampled_from(["largest", "smallest", "both", "magnitude"]),
    st.integers(1, 3),
)
def test_lanczos_is_right_for_any_multiplicities(values: list[float], k: int, which: str, block: int) -> None:
    """Forced through Lanczos, past the exact path for small problems."""
    from hesscope.linalg.krylov.run import Goal, KrylovRun

    spectrum = np.sort(values)
    goal = Goal(min(k, spectrum.size), which, 1e-6)
    run = KrylovRun(Counted(Rotated(np.array(values))), goal, block, 1000, Rng(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.run(None, 10_000)
    found = run.wanted()[0]
    np.testing.assert_allclose(np.sort(np.abs(found)), np.sort(np.abs(spectrum[goal.select(spectrum)])), atol=1e-6)


@pytest.mark.parametrize("scale", [1e-200, 1e-140, 1e140])
def test_matrices_whose_squares_are_no_numbers_are_refused(scale: float) -> None:
    matrix = torch.randn(300, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for ask in (eigenpairs, frobenius_norm, trace):
        with pytest.raises(InputError, match="must be between"):
            ask(Dense(scale * (matrix + matrix.T)), max_products=20)
