"""No algorithm spends more than what the whole matrix would have cost."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

import hesscope as hs


def symmetric(n: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Flat and indefinite: the worst case of every sketch."""
    a = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return ((a + a.T) / 2).to(dtype)


@pytest.mark.parametrize("n", [5, 56, 201, 300, 900])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_trace_takes_at_most_n_products(n: int, dtype: torch.dtype) -> None:
    a = symmetric(n, n, dtype)
    found = hs.trace(hs.Dense(a), rng=1)
    assert found.products <= n
    assert found.exact
    scale = float(torch.linalg.matrix_norm(a)) * np.sqrt(n) * torch.finfo(dtype).eps
    assert abs(float(found) - float(a.double().trace())) <= 10 * scale


@pytest.mark.parametrize("n", [150, 301, 700])
def test_so_do_diagonals_and_row_norms(n: int) -> None:
    a = symmetric(n, n)
    diagonal, rows = hs.diagonal(hs.Dense(a), rng=1), hs.row_norms(hs.Dense(a), rng=1, tol=1e-3)
    assert diagonal.products <= n
    assert rows.products <= n
    assert diagonal.exact
    assert rows.exact
    assert diagonal.value == pytest.approx(a.diagonal().numpy(), abs=1e-9)
    assert rows.value == pytest.approx(a.norm(dim=1).numpy(), abs=1e-9)


@pytest.mark.parametrize("n", [470, 600, 1000])
def test_so_does_a_density(n: int) -> None:
    a = symmetric(n, n)
    found = hs.spectral_density(hs.Dense(a), rng=1)
    assert found.products <= n
    truth = hs.AtomicMeasure.of(torch.linalg.eigvalsh(a).numpy())
    assert found.wasserstein(truth) <= (1e-9 if n <= 480 else 0.1 * np.sqrt(n))


@pytest.mark.parametrize("n", [56, 470, 900])
def test_so_does_a_frobenius_norm_however_sharp(n: int) -> None:
    a = symmetric(n, n)
    found = hs.frobenius_norm(hs.Dense(a), 1e-5, rng=1)
    assert found.products <= n
    assert found.exact
    assert float(found) == pytest.approx(float(a.norm()), rel=1e-10)


@pytest.mark.parametrize("settings", [{"tol": 0}, {"method": "chebyshev"}])
def test_a_density_of_fixed_length_is_no_longer_than_the_whole_matrix(settings: dict[str, Any]) -> None:
    a = symmetric(470, 3)
    found = hs.spectral_density(hs.Dense(a), rng=1, **settings)
    assert found.products == 470
    assert found.wasserstein(hs.AtomicMeasure.of(torch.linalg.eigvalsh(a).numpy())) <= 1e-9


@pytest.mark.parametrize("n", [56, 470])
@pytest.mark.parametrize("method", ["cg", "minres"])
def test_so_does_an_ill_conditioned_system(n: int, method: Literal["cg", "minres"]) -> None:
    """Short recurrences lose orthogonality and take several times n steps."""
    a, b = symmetric(n, n), torch.ones(n, dtype=torch.float64)
    if method == "cg":
        a = a @ a / n + 1e-6 * torch.eye(n, dtype=torch.float64)
    found = hs.solve(hs.Dense(a, symmetric=True), b, method=method, tol=1e-8)
    assert found.products <= n
    assert found.converged
    torch.testing.assert_close(found.x, torch.linalg.solve(a, b), rtol=1e-5, atol=1e-5 * float(found.x.abs().max()))


@pytest.mark.parametrize("seed", range(8))
def test_a_system_without_a_solution_gets_the_nearest_one(seed: int) -> None:
    """Eigenvalues of zero are some roundings large: taken for curvature, they give an x of any length in their direction."""
    values = torch.cat([torch.linspace(-1, 1, 60), torch.zeros(10)]).double()
    q = torch.linalg.qr(torch.randn(70, 70, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))[0]
    a, b = q @ torch.diag(values) @ q.T, q @ torch.ones(70, dtype=torch.float64)
    with pytest.warns(UserWarning, match="reached a relative residual"):
        found = hs.solve(hs.Dense(a, symmetric=True), b, method="minres")
    assert found.products <= 70
    assert found.residual == pytest.approx((10 / 70) ** 0.5, rel=1e-6)


def test_resumed_runs_are_completed_too(tmp_path: Path) -> None:
    """Killed while the rest of the matrix was multiplied out: it goes on there, and n products are not exceeded."""
    a = symmetric(500, 7)

    class Killed(Exception):
        pass

    def kill(count: int, seconds: float) -> None:
        if count > 400:
            raise Killed

    for name, function in (("trace", hs.trace), ("diagonal", hs.diagonal), ("rows", hs.row_norms)):
        with pytest.raises(Killed):
            function(hs.Counted(hs.Dense(a), on_product=kill), 1e-3, rng=1, resume=tmp_path / name)
        found = function(hs.Dense(a), 1e-3, rng=1, resume=tmp_path / name)
        whole = function(hs.Dense(a), 1e-3, rng=1)
        assert found.exact
        assert found.products == whole.products <= 500
        assert np.array_equal(found.value, whole.value)


def test_decaying_spectra_still_take_few() -> None:
    values = 0.8 ** torch.arange(600, dtype=torch.float64)
    found = hs.trace(hs.Dense(torch.diag(values)), rng=1)
    assert found.products <= 60
    assert abs(float(found) - 5) <= 4 * float(found.stderr)


def test_a_budget_is_kept() -> None:
    a = symmetric(300, 0)
    with pytest.warns(UserWarning, match="after"):
        found = hs.trace(hs.Dense(a), max_products=100, rng=1)
    assert found.products <= 100
    assert abs(float(found) - float(a.trace())) <= 5 * float(found.stderr)


def test_structure_that_misses_the_tolerance_gives_way() -> None:
    """A curved network whose trace almost cancels: random columns and functional products cannot meet 1 %."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 12)).double()
    data = (torch.randn(30, 10).double(), 3 * torch.randn(30, 12).double())
    problem = hs.Problem.of(model, nn.MSELoss(), data)
    H = hs.Hessian(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hs.trace(H, 1e-4, rng=0)
    assert found.products <= problem.space.size
    truth = sum(float(H.block(name).dense().trace()) for name in problem.space.names)
    assert abs(float(found) - truth) <= 1e-4 * abs(truth)
