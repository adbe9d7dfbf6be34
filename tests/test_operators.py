from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hesscope as hs
from curvature.cases import CASES
from hesscope.errors import BudgetExceeded, InputError
from hesscope.operators import BlockDiagonal, Counted, Dense, Kronecker, LinearOperator, LowRank
from hesscope.testing import check_operator


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=hs.Rng(1).child(*shape).torch(), dtype=torch.float64)


def test_every_operator_passes_the_public_check() -> None:
    a, b = random(3, 4), random(5, 2)
    check_operator(Dense(a), a)
    check_operator(Kronecker(a, b), torch.kron(a, b))
    check_operator(
        LowRank(random(6, 2), torch.tensor([2.0, -1.0])),
        random(6, 2) @ torch.diag(torch.tensor([2.0, -1.0]).double()) @ random(6, 2).T,
    )
    check_operator(BlockDiagonal([Dense(a), Dense(b)]), torch.block_diag(a, b))
    check_operator(Dense(a) + 2.0 * Dense(a) - Dense(a), 2 * a)
    check_operator(Dense(a).T, a.T)
    check_operator(Counted(Dense(a)), a)


@pytest.mark.parametrize(
    "make", [hs.Hessian, hs.GaussNewton, hs.FunctionalHessian, hs.Jacobian, lambda p: hs.Hessian(p).block("0.*", "2.*")]
)
def test_curvature_operators_pass_the_public_check(make: type) -> None:
    check_operator(make(CASES["mlp"]().problem))


def test_the_check_can_fail() -> None:
    with pytest.raises(AssertionError, match="off by"):
        check_operator(Dense(torch.eye(3).double()), 1.001 * torch.eye(3).double())
    with pytest.raises(AssertionError, match="must equal"):
        check_operator(Dense(random(3, 3), symmetric=True))


def test_counting_and_budgets() -> None:
    seen: list[int] = []
    op = Counted(Dense(torch.eye(4).double()), budget=3, on_product=lambda count, seconds: seen.append(count))
    op @ torch.ones(4, 2).double()
    op @ torch.ones(4).double()
    assert (op.count, seen) == (3, [2, 3])
    with pytest.raises(BudgetExceeded, match="3 of 3 products are spent and 1 more"):
        op @ torch.ones(4).double()


def test_shapes_must_fit() -> None:
    with pytest.raises(InputError, match="one shape"):
        Dense(random(3, 4)) + Dense(random(4, 3))


S = random(6, 6) + random(6, 6).T


def test_the_algebra_of_operators() -> None:
    a, b = random(3, 4), random(4, 5)
    eye = torch.eye(6, dtype=torch.float64)
    check_operator(Dense(a) @ Dense(b), a @ b)
    check_operator((Dense(a) @ Dense(b)).T, (a @ b).T)
    check_operator(Dense(S) @ Dense(S).T, S @ S)
    check_operator(Dense(a).T @ Dense(a), a.T @ a)
    check_operator(Dense(S) + 0.1, S + 0.1 * eye)
    check_operator(0.1 + Dense(S), S + 0.1 * eye)
    check_operator(Dense(S) - 0.1, S - 0.1 * eye)
    check_operator(2 - Dense(S), 2 * eye - S)
    check_operator(Dense(S) / 4, S / 4)
    check_operator(np.float64(3.0) * Dense(S), 3 * S)
    check_operator(-Dense(S) @ Dense(S), -S @ S)


def test_a_product_knows_whether_it_is_symmetric() -> None:
    A, H, G = Dense(random(3, 6)), Dense(S), Dense(S + torch.eye(6).double())
    assert (H @ H).symmetric
    assert (A.T @ A).symmetric
    assert (A @ A.T).symmetric
    assert not (H @ G).symmetric
    assert not (A @ H).symmetric
    assert (H @ G @ H).symmetric
    assert ((H @ A.T) @ (A @ H)).symmetric
    assert not (H @ H @ G).symmetric
    with pytest.raises(InputError, match="needs a symmetric operator"):
        hs.eigenpairs(H @ G)
    assert hs.eigenpairs(H @ H, 1).values[0] == pytest.approx(float(torch.linalg.eigvalsh(S @ S)[-1]))


def test_a_sum_knows_whether_it_is_symmetric() -> None:
    """The advice given for an operator that is not, 0.5 * (A + A.T), is taken."""
    H, G = Dense(S), Dense(S + torch.diag(torch.arange(6.0)).double())
    A = H @ G
    check_operator(0.5 * (A + A.T), 0.5 * (A.dense() + A.dense().T))
    assert hs.trace(0.5 * (A + A.T)).value == pytest.approx(float(A.dense().trace()))
    assert (H @ G + G @ H).symmetric
    assert (A + A.T + H).symmetric
    assert (0.5 * A + 0.5 * A.T).symmetric
    assert (A - (H - A.T)).symmetric
    assert not (A - A.T).symmetric
    assert not (A + 2 * A.T).symmetric
    assert not (A + A + A.T).symmetric


def test_damping_shifts_every_eigenvalue() -> None:
    problem = CASES["mlp"]().problem
    H = hs.Hessian(problem)
    plain, damped = hs.eigenpairs(H, 3), hs.eigenpairs(H + 0.1, 3)
    np.testing.assert_allclose(damped.values, plain.values + 0.1, rtol=1e-9)
    assert (H + 0.1).verified == H.verified


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda H: H @ torch.full((6,), float("nan")), "finite numbers; got NaN"),
        (lambda H: H @ np.array([0.0, 1, 2, 3, 4, np.inf]), "finite numbers; got NaN"),
        (lambda H: H @ np.array([-np.inf, 1, 2, 3, 4, np.inf]), "finite numbers; got NaN"),
        (lambda H: H @ torch.zeros(5), r"shape \(6,\) or \(6, k\); got \(5,\)"),
        (lambda H: H @ torch.zeros(2, 3, 6), r"shape \(6,\) or \(6, k\)"),
        (lambda H: H @ torch.zeros(6, dtype=torch.complex64), "real numbers"),
        (lambda H: H @ [1.0] * 6, "a tensor or an array; got list"),
        (lambda H: torch.zeros(6).numpy() @ H, r"Write A\.T @ v"),
        (lambda H: H @ Dense(random(5, 5)), "as many columns as B has rows"),
        (lambda H: H @ Dense(random(6, 6).float()), "one dtype"),
        (lambda H: H + Dense(S.float()), "one dtype and device"),
        (lambda H: H + S, r"Write A \+ hs.Dense"),
        (lambda H: H + "a", "takes numbers and operators; got str"),
        (lambda H: H * float("nan"), "finite numbers"),
        (lambda H: H / 0, "other than 0"),
        (lambda H: Dense(random(3, 4)) + 0.1, "square operator"),
        (lambda H: Dense("matrix"), "must be a tensor or an array; got str"),
        (lambda H: LowRank(random(6, 2), torch.ones(3)), r"values \(k,\)"),
    ],
)
def test_mix_ups_in_the_algebra_are_explained(work: Callable[[LinearOperator], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        work(Dense(S))


ALGORITHMS: dict[str, Callable[[Any], Any]] = {
    "eigenpairs": lambda A: hs.eigenpairs(A, 3).values,
    "spectral_density": lambda A: hs.spectral_density(A, 2, steps=10).nodes,
    "trace": lambda A: hs.trace(A).value,
    "diagonal": lambda A: hs.diagonal(A).value,
    "row_norms": lambda A: hs.row_norms(A).value,
    "frobenius_norm": lambda A: hs.frobenius_norm(A).value,
    "spectral_norm": lambda A: hs.spectral_norm(A).value,
    "solve": lambda A: hs.solve(A, np.ones(size_of(A)), method="minres", damping=0.1, tol=1e-3).x,
}


def size_of(A: Any) -> int:
    return A.space.size if isinstance(A, hs.Problem) else int(A.shape[0])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_problem_stands_for_its_hessian(name: str) -> None:
    problem = CASES["mlp"]().problem
    np.testing.assert_array_equal(ALGORITHMS[name](problem), ALGORITHMS[name](hs.Hessian(problem)))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "solve"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.nn.Linear(2, 2), r"the model Linear.*hs\.Problem\.of"),
        (hs.Hessian, r"the class Hessian\. Make one first"),
        (hs.Problem, "the class Problem"),
        ("hessian", "got str"),
        (np.eye(3), r"a plain array of shape \(3, 3\)\. Write hs\.Dense"),
        (torch.eye(3), r"a plain tensor of shape \(3, 3\)\. Write hs\.Dense"),
        (None, "got NoneType"),
        (hs.trace, "the function 'trace'"),
    ],
)
def test_what_is_no_matrix_is_explained(name: str, given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ALGORITHMS[name](given)


def test_seeds_are_numbers_or_sources() -> None:
    op = Dense(random(300, 300) + random(300, 300).T)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_number, by_source, other = (hs.trace(op, method="xtrace", max_products=40, rng=r) for r in (3, hs.Rng(3), 4))
    assert by_number.value == by_source.value != other.value
    with pytest.raises(InputError, match="rng must be an Rng, a seed or None; got str"):
        hs.trace(op, rng="3")


def test_loaded_eigenvectors_start_another_run(tmp_path: Path) -> None:
    op = Dense(random(300, 300) + random(300, 300).T)
    fresh = hs.eigenpairs(op, 4, tol=1e-8)
    loaded = hs.Eigenpairs.load(fresh.save(tmp_path / "pairs"))
    again = hs.eigenpairs(op, 4, start=loaded.vectors)
    assert again.products < fresh.products
    np.testing.assert_array_equal(again.values, hs.eigenpairs(op, 4, start=fresh.vectors).values)
    check_operator(
        LowRank(loaded.vectors, loaded.values), fresh.vectors * torch.as_tensor(fresh.values) @ fresh.vectors.T
    )


def test_finite_vectors_whose_sum_overflows_are_finite() -> None:
    assert torch.isfinite(Dense(torch.eye(3)) @ torch.full((3,), 3e38)).all()


def test_results_from_a_jacobian_say_what_was_verified() -> None:
    J = hs.Jacobian(CASES["mlp"]().problem)
    assert hs.frobenius_norm(J).check.startswith("verified on")


def test_a_matrix_that_is_symmetric_up_to_rounding_is_symmetric() -> None:
    torch.manual_seed(0)
    a = torch.randn(30, 30, dtype=torch.float64)
    a = a + a.T
    rounded = a + 1e-16 * torch.randn(30, 30, dtype=torch.float64)
    assert not torch.equal(rounded, rounded.T)
    assert hs.Dense(rounded).symmetric
    assert hs.eigenpairs(hs.Dense(rounded), 1).values[0] == pytest.approx(float(torch.linalg.eigvalsh(a)[-1]))
    assert not hs.Dense(a + 1e-10 * torch.randn(30, 30, dtype=torch.float64)).symmetric
    assert not hs.Dense(torch.randn(3, 4)).symmetric
