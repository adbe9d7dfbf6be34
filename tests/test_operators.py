from __future__ import annotations

import pytest
import torch

import hesscope as hs
from curvature.cases import CASES
from hesscope.errors import BudgetExceeded, InputError
from hesscope.operators import BlockDiagonal, Counted, Dense, Kronecker, LowRank
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
