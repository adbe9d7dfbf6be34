"""Spectral densities: accuracy per product, calibrated errors, exact cases, both methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hesscope import scratch
from hesscope.errors import BudgetExceeded, InputError
from hesscope.linalg import SpectralDensity, spectral_density
from hesscope.linalg.density import spectrum
from hesscope.linalg.density.quadrature import gauss, levy, rules
from hesscope.linalg.krylov import room
from hesscope.linalg.krylov.lanczos import Lanczos
from hesscope.linalg.krylov.room import room_on_disk
from hesscope.measure import AtomicMeasure
from hesscope.operators import Counted, Dense, LinearOperator
from hesscope.rng import Rng
from linalg.cases import Rotated, dense_of, network_like


def chain(op: LinearOperator, seed: int, steps: int, full: bool = True) -> Lanczos:
    start = op.layout.draw(Rng(seed), 1, "normal", op.dtype, op.device)
    lanczos = Lanczos(op, start, start[:, :0], full)
    while lanczos.steps < steps and not lanczos.ended:
        lanczos.step()
    return lanczos


def plain(op: LinearOperator, probes: int, steps: int) -> AtomicMeasure:
    """What stochastic Lanczos quadrature gives elsewhere: equal probes, fixed steps, Gauss nodes."""
    chains = [chain(op, 100 + i, steps) for i in range(probes)]
    return AtomicMeasure.mixture([gauss(np.array(c.alpha), np.array(c.beta)[:-1]) for c in chains])


def distances(found: AtomicMeasure, truth: AtomicMeasure) -> np.ndarray:
    return np.array([found.wasserstein(truth), found.kolmogorov(truth)])


@pytest.mark.parametrize(("noise", "products"), [(0.02, 120), (0.3, 200)])
def test_a_fraction_of_the_products_of_ten_by_eighty_is_as_accurate(noise: float, products: int) -> None:
    values = network_like(1000)
    values[109:] = noise * np.random.default_rng(1).standard_normal(891)
    op, truth = Rotated(values), AtomicMeasure.of(values)
    ours = [spectral_density(op, rng=Rng(seed)) for seed in range(3)]
    assert np.mean([found.products for found in ours]) <= products
    assert (np.mean([distances(found, truth) for found in ours], axis=0) < distances(plain(op, 10, 80), truth)).all()


def test_a_smooth_bulk_without_outliers_needs_at_most_half() -> None:
    x = np.random.default_rng(0).standard_normal((600, 1200))
    values = np.linalg.eigvalsh(x @ x.T / 1200)
    op, truth = Rotated(values), AtomicMeasure.of(values)
    ours = [spectral_density(op, rng=Rng(seed)) for seed in range(3)]
    assert max(found.products for found in ours) <= 400
    theirs = distances(plain(op, 10, 80), truth)
    assert (np.mean([distances(found, truth) for found in ours], axis=0) < 1.2 * theirs).all()


def test_standard_errors_are_calibrated_and_errors_are_honest() -> None:
    values = network_like(600)
    op, truth = Rotated(values), AtomicMeasure.of(values)
    scores, ratios = [], []
    for seed in range(60):
        found = spectral_density(op, probes=2, steps=28, tol=0, rng=Rng(seed))
        assert found.products == 56
        scores.append(
            [
                (found.moment(1) - truth.moment(1)) / found.moment_stderr(1),
                (found.cdf(0.05) - truth.cdf(0.05)) / found.cdf_stderr(0.05),
                (found.density(0.02, 0.02) - truth.density(0.02, 0.02)) / found.density_stderr(0.02, 0.02),
            ]
        )
        ratios.append((found.wasserstein(truth) / found.error, found.kolmogorov(truth) / found.sup_error))
    # The spread of 60 unit normals is 1 ± 0.09, their mean 0 ± 0.13.
    assert (np.abs(np.std(scores, axis=0) - 1) < 0.36).all()
    assert (np.abs(np.mean(scores, axis=0)) < 0.52).all()
    assert (np.mean(ratios, axis=0) < 1.2).all()
    assert (np.mean(ratios, axis=0) > 0.2).all()


def test_asking_for_less_error_gives_less_error_for_more_products() -> None:
    values = network_like(1000)
    op, truth = Rotated(values), AtomicMeasure.of(values)
    rough, fine = (spectral_density(op, probes=20, steps=120, tol=tol) for tol in (0.2, 0.03))
    assert fine.products > rough.products
    spread = np.abs(values - np.median(values)).mean()
    assert fine.error <= 0.03 * spread
    assert fine.wasserstein(truth) <= 0.05 * spread
    assert rough.wasserstein(truth) <= 0.3 * spread


def test_outliers_are_atoms_of_weight_one_over_n() -> None:
    values = network_like(2000)
    found = spectral_density(Rotated(values))
    np.testing.assert_allclose(found.outliers[:9], np.sort(values)[::-1][:9], rtol=1e-4)
    assert found.mass(9.9, 10.1) == pytest.approx(1 / 2000)
    assert found.weights.sum() == pytest.approx(1.0)
    assert found.probe(1).nodes.max() < 1.6


def test_moments_are_exact_for_each_probe() -> None:
    """Every rule of the family integrates polynomials up to degree 2m against the probe's own measure."""
    op = Rotated(np.linspace(-1, 1, 500))
    start = op.layout.draw(Rng(0), 1, "normal", op.dtype, op.device)
    unit = start / torch.linalg.vector_norm(start)
    lanczos = chain(op, 0, 3)
    nodes, weights = rules(np.array(lanczos.alpha), np.array(lanczos.beta))
    power = unit
    for degree in range(1, 7):
        power = op @ power
        np.testing.assert_allclose((weights * nodes**degree).sum(1), float(unit.T @ power), atol=1e-12)
    assert np.ptp((weights * nodes**7).sum(1)) > 1e-3


def test_a_spectrum_of_few_atoms_is_found_exactly() -> None:
    values = np.repeat([0.0, 1.0, 3.0], [600, 300, 100])
    found = spectral_density(Rotated(values), probes=30)
    assert set(np.round(found.nodes[found.weights > 1e-12], 9)) == {0.0, 1.0, 3.0}
    assert abs(found.cdf(0.5) - 0.6) <= 4 * found.cdf_stderr(0.5)
    assert found.products <= 90


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_few_steps_and_no_spread(steps: int) -> None:
    found = spectral_density(Rotated(network_like(300)), probes=2, steps=steps)
    assert found.steps == (steps, steps)
    assert found.error > 0
    zero = spectral_density(Rotated(np.zeros(300)), steps=steps)
    assert (zero.nodes == 0).all()
    assert zero.error == 0


def test_small_problems_are_exact() -> None:
    values = network_like(150)
    found = spectral_density(Rotated(values))
    np.testing.assert_allclose(found.nodes, np.sort(values), atol=1e-12)
    assert found.exact
    assert found.error == 0
    assert found.products == 150
    assert (found.cdf_stderr([0.0, 1.0]) == 0).all()


def test_two_vectors_of_memory_give_the_same_quadrature() -> None:
    op = Rotated(network_like(800))
    full, local = (chain(op, 3, 40, full) for full in (True, False))
    first, second = (gauss(np.array(c.alpha), np.array(c.beta)[:-1]) for c in (full, local))
    # Without reorthogonalisation converged values repeat, with their weight divided between the copies.
    for degree in range(1, 20):
        assert second.moment(degree) == pytest.approx(first.moment(degree), rel=1e-9)
    assert not np.allclose(first.nodes, second.nodes, rtol=1e-3)
    assert len(local.rows) == 2


def test_without_room_for_a_basis_two_vectors_still_give_the_density(monkeypatch: pytest.MonkeyPatch) -> None:
    values = network_like(600)
    monkeypatch.setattr(spectrum, "vectors_that_fit", lambda op: 4)
    monkeypatch.setattr(spectrum, "room_on_disk", lambda op, count, folder: None)
    found = spectral_density(Rotated(values), probes=4)
    assert found.outliers.size == 0
    assert found.method == "slq without a basis"
    assert abs(found.moment(1) - values.mean()) <= 4 * found.moment_stderr(1)


@pytest.mark.parametrize("products", [5, 30, 35])
def test_vectors_that_memory_does_not_hold_go_to_a_file(
    products: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = Rotated(network_like(600))
    truth = spectral_density(op, probes=4, steps=30)
    assert truth.outliers.size > 5
    monkeypatch.setattr(spectrum, "vectors_that_fit", lambda op: 4)
    rooms = []

    def watched(*given: Any) -> Any:
        rooms.append(room_on_disk(*given))
        return rooms[-1]

    monkeypatch.setattr(spectrum, "room_on_disk", watched)
    found = spectral_density(op, probes=4, steps=30)
    assert rooms[0] is not None
    assert rooms[0].is_shared()
    assert found.method == "slq"
    assert found.products == truth.products > 40
    assert np.allclose(found.nodes, truth.nodes, rtol=1e-9, atol=1e-12)
    assert np.allclose(found.weights, truth.weights, rtol=1e-6, atol=1e-12)
    # The same where it was stopped: in the first chain, and with outliers that are there already.
    with pytest.raises(BudgetExceeded):
        spectral_density(Counted(op, budget=products), probes=4, steps=30, resume=tmp_path / "state")
    assert not [file for file in (tmp_path / "state").rglob("*") if file.name.startswith(".")]
    again = spectral_density(op, probes=4, steps=30, resume=tmp_path / "state")
    assert again.nodes.tobytes() == found.nodes.tobytes()
    assert again.weights.tobytes() == found.weights.tobytes()


def test_there_is_no_room_on_a_disk_that_is_none_or_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    op = Rotated(network_like(600))
    assert room_on_disk(op, 10, tmp_path) is not None
    assert room_on_disk(op, 10**12, tmp_path) is None
    mounts = tmp_path / "mounts"
    mounts.write_text(f"none / ext4 rw 0 0\nnone {tmp_path} tmpfs rw 0 0\n")
    monkeypatch.setattr(scratch, "_MOUNTS", mounts)
    assert room_on_disk(op, 10, tmp_path) is None
    mounts.write_text("none / ext4 rw 0 0\n")
    assert room_on_disk(op, 10, tmp_path) is not None
    (tmp_path / "file").touch()
    assert room_on_disk(op, 10, tmp_path / "file") is None


def test_rows_are_mixed_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_PIECE", 7)
    rows, weights = torch.randn(5, 30, dtype=torch.float64), np.random.default_rng(0).standard_normal((3, 5))
    truth = torch.as_tensor(weights) @ rows
    room.mix_rows(rows, weights)
    assert torch.allclose(rows[:3], truth, atol=1e-12)


def test_chebyshev_agrees_within_its_resolution() -> None:
    matrix = dense_of(np.concatenate([np.random.default_rng(0).uniform(-1, 1, 500), [2.0]]))
    truth = AtomicMeasure.of(np.linalg.eigvalsh(matrix.numpy()))
    found = spectral_density(Dense(matrix), probes=6, steps=80, method="chebyshev")
    assert found.products == 6 * 80 + 12
    assert found.wasserstein(truth) <= 0.03
    assert abs(found.moment(1) - truth.moment(1)) <= 4 * found.moment_stderr(1)
    assert abs(found.cdf(0.0) - truth.cdf(0.0)) <= 4 * found.cdf_stderr(0.0) + 0.01


def test_chebyshev_rings_nowhere() -> None:
    """Jackson's kernel keeps an atom within a few widths of its place; a truncated series would ring across the range."""
    found = spectral_density(Rotated(np.concatenate([np.zeros(998), [-1.0, 1.0]])), 2, steps=60, method="chebyshev")
    assert found.mass(-0.2, 0.2) > 0.99


def test_chebyshev_stops_by_tolerance() -> None:
    found = spectral_density(Rotated(np.linspace(-1, 1, 3000)), probes=10, steps=80, tol=0.1, method="chebyshev")
    assert len(found.steps) < 10
    assert found.sup_error <= 0.1


def test_levy_forgives_shifts_and_nothing_else() -> None:
    first, second = AtomicMeasure.of([0.0, 1.0]), AtomicMeasure.of([0.001, 1.0])
    assert levy(first, second, 0.01) == 0
    assert levy(first, second, 0.0001) == 0.5
    assert levy(first, AtomicMeasure.of([0.0, 1.0], [0.8, 0.2]), 0.01) == pytest.approx(0.3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_and_determinism(dtype: torch.dtype) -> None:
    op = Rotated(network_like(800), dtype)
    first, second = (spectral_density(op, rng=Rng(5)) for _ in range(2))
    np.testing.assert_array_equal(first.nodes, second.nodes)
    assert abs(first.moment(2) - (op.values.double() ** 2).mean()) <= 4 * first.moment_stderr(2) + 1e-6


def test_results_survive_saving(tmp_path: Path) -> None:
    found = spectral_density(Rotated(network_like(600)))
    back = SpectralDensity.load(found.save(tmp_path / "density"))
    np.testing.assert_array_equal(back.probe(1).nodes, found.probe(1).nodes)
    assert back.cdf_stderr(0.1) == found.cdf_stderr(0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probes": 0}, "probes must be >= 1"),
        ({"steps": 0}, "steps must be >= 1"),
        ({"tol": -1.0}, "tol must be >= 0"),
        ({"method": "kpm"}, "method must be"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        spectral_density(Rotated(network_like(600)), **arguments)


def test_bad_operators_are_refused() -> None:
    general = torch.randn(300, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(InputError, match="symmetric operator"):
        spectral_density(Dense(general))
    with pytest.raises(InputError, match=r"products of Rotated\(500, 500\) must be finite"):
        spectral_density(Counted(Rotated(np.concatenate([[np.inf], np.ones(499)]))))
    with pytest.raises(InputError, match="products differ by"):
        spectral_density(Dense(general, symmetric=True))


@pytest.mark.parametrize("rank", [1, 3])
def test_what_rounding_leaves_beside_a_few_eigenvalues_is_no_asymmetry(rank: int) -> None:
    for seed in range(3):
        draw = torch.randn(700, rank, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        found = spectral_density(Dense(draw @ draw.T), rng=seed)
        assert found.mean == pytest.approx(float(draw.square().sum()) / 700, rel=1e-9)
