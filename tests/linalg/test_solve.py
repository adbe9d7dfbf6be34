"""Linear systems against dense solves, and what must be refused or warned about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hesscope.errors import InputError
from hesscope.linalg import Solution, solve
from hesscope.operators import Dense
from linalg.cases import Rotated, dense_of, network_like

B = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("method", ["cg", "minres"])
def test_definite_systems_agree_with_a_dense_solve(method: str, damping: float) -> None:
    matrix = dense_of(np.linspace(0.1, 3, 400))
    found = solve(Dense(matrix, symmetric=True), B, method=method, damping=damping, tol=1e-9)
    truth = torch.linalg.solve(matrix + damping * torch.eye(400), B)
    assert found.converged
    np.testing.assert_allclose(found.x, truth, atol=1e-7)
    true = torch.linalg.vector_norm(matrix @ found.x + damping * found.x - B) / torch.linalg.vector_norm(B)
    assert found.residual == pytest.approx(float(true), rel=1e-3)


def test_minres_solves_an_indefinite_system_and_cg_refuses_it() -> None:
    values = np.concatenate([np.linspace(-2, -0.2, 150), np.linspace(0.2, 3, 250)])
    op = Rotated(values)
    found = solve(op, B, method="minres", tol=1e-8)
    assert float(torch.linalg.vector_norm(op @ found.x - B)) <= 1e-8 * float(torch.linalg.vector_norm(B))
    with pytest.raises(InputError, match=r'positive curvature.*method="minres"'):
        solve(op, B, method="cg")


def test_few_distinct_eigenvalues_need_as_few_products() -> None:
    op = Rotated(np.repeat([1.0, 2.0, 5.0], [100, 200, 100]))
    for method in ("cg", "minres"):
        assert solve(op, B, method=method, tol=1e-10).products <= 5


def test_zero_right_hand_side_costs_nothing() -> None:
    found = solve(Rotated(network_like(400)), torch.zeros(400))
    assert found.products == 0
    assert found.converged
    assert (found.x == 0).all()


def test_missed_tolerance_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="after 10 products"):
        found = solve(Rotated(np.geomspace(1e-6, 1, 400)), B, method="minres", max_products=10)
    assert not found.converged
    assert found.products == 10


def test_float32_and_saving(tmp_path: Path) -> None:
    found = solve(Rotated(np.linspace(0.5, 2, 400), torch.float32), B, tol=1e-5)
    assert found.x.dtype == torch.float32
    assert Solution.load(found.save(tmp_path / "x")).residual == found.residual


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"b": torch.zeros(3)}, r"b must have shape \(400,\)"),
        ({"b": torch.full((400,), torch.nan)}, "b must be finite"),
        ({"method": "lu"}, "method must be"),
        ({"damping": -1.0}, "damping must be"),
        ({"tol": 0.0}, "tol must be > 0"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        solve(Rotated(np.linspace(0.5, 2, 400)), **{"b": B, **arguments})
