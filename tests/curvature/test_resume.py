from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hesscope as hs
from hesscope.errors import BudgetExceeded, FileError, InputError
from hesscope.operators import BlockDiagonal, Dense, Kronecker, LowRank


def problem(seed: int = 0) -> hs.Problem:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(10, 30), nn.Tanh(), nn.Linear(30, 5))
    x, y = torch.randn(100, 10, generator=hs.Rng(1).torch()), torch.arange(100) % 5
    return hs.Problem.of(model, "cross_entropy", (x, y), batch_size=40)


def test_a_run_that_was_cut_off_ends_with_the_same_numbers(tmp_path: Path) -> None:
    whole = hs.eigenpairs(hs.Hessian(problem()), k=6, tol=1e-4)
    with pytest.raises(BudgetExceeded):
        hs.eigenpairs(hs.Counted(hs.Hessian(problem()), budget=9), k=6, tol=1e-4, resume=tmp_path)
    resumed = hs.eigenpairs(hs.Hessian(problem()), k=6, tol=1e-4, resume=tmp_path)
    assert np.array_equal(resumed.values, whole.values)
    assert torch.equal(resumed.vectors, whole.vectors)
    assert resumed.products == whole.products


def test_the_state_of_other_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded):
        hs.eigenpairs(hs.Counted(hs.Hessian(problem()), budget=9), k=6, resume=tmp_path)
    with pytest.raises(InputError, match="fingerprint"):
        hs.eigenpairs(hs.Hessian(problem(seed=1)), k=6, resume=tmp_path)


X, Y = torch.randn(60, 8, generator=hs.Rng(1).torch()), torch.arange(60) % 4


def network(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))


def of(model: nn.Module, loss: nn.Module | None = None, x: torch.Tensor = X, y: torch.Tensor = Y) -> hs.Problem:
    return hs.Problem.of(model, nn.CrossEntropyLoss() if loss is None else loss, (x, y))


def permuted() -> nn.Module:
    """The same function with its hidden neurons in another order: every norm and the loss stay."""
    model, order = network(), torch.arange(15, -1, -1)
    with torch.no_grad():
        model[0].weight.copy_(model[0].weight[order])
        model[0].bias.copy_(model[0].bias[order])
        model[2].weight.copy_(model[2].weight[:, order])
    return model


def flipped() -> nn.Module:
    """The same function, since tanh is odd, with one neuron's signs turned."""
    model = network()
    with torch.no_grad():
        model[0].weight[3] *= -1
        model[0].bias[3] *= -1
        model[2].weight[:, 3] *= -1
    return model


def next_epoch() -> nn.Module:
    """One small step further."""
    model = network()
    with torch.no_grad():
        model[0].weight[0, 0] += 1e-6
    return model


def random_matrix(name: str, n: int) -> torch.Tensor:
    a = torch.randn(n, n, generator=hs.Rng(3).child(name).torch())
    return a + a.T


def base() -> hs.Problem:
    return of(network())


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "another seed": (lambda: hs.Hessian(base()), lambda: hs.Hessian(of(network(1)))),
    "the next epoch": (lambda: hs.Hessian(base()), lambda: hs.Hessian(of(next_epoch()))),
    "sum instead of mean": (
        lambda: hs.Hessian(base()),
        lambda: hs.Hessian(of(network(), nn.CrossEntropyLoss(reduction="sum"))),
    ),
    "label smoothing": (
        lambda: hs.Hessian(base()),
        lambda: hs.Hessian(of(network(), nn.CrossEntropyLoss(label_smoothing=0.05))),
    ),
    "other data": (lambda: hs.Hessian(base()), lambda: hs.Hessian(of(network(), x=X.flip(0)))),
    "permuted neurons": (lambda: hs.Hessian(base()), lambda: hs.Hessian(of(permuted()))),
    "sign-flipped neuron": (lambda: hs.Hessian(base()), lambda: hs.Hessian(of(flipped()))),
    "Gauss-Newton": (lambda: hs.Hessian(base()), lambda: hs.GaussNewton(base())),
    "empirical Fisher": (lambda: hs.Fisher(base(), "exact"), lambda: hs.Fisher(base(), "empirical")),
    "other draws of the Fisher": (
        lambda: hs.Fisher(base(), "mc", rng=hs.Rng(0)),
        lambda: hs.Fisher(base(), "mc", rng=hs.Rng(1)),
    ),
    "twice": (lambda: hs.Hessian(base()), lambda: 2 * hs.Hessian(base())),
    "another multiple": (lambda: 2 * hs.Hessian(base()), lambda: 3 * hs.Hessian(base())),
    "H - G of other weights": (
        lambda: hs.Hessian(base()) - hs.GaussNewton(base()),
        lambda: hs.Hessian(of(network(1))) - hs.GaussNewton(of(network(1))),
    ),
    "the sign in a sum": (
        lambda: hs.Hessian(base()) - hs.GaussNewton(base()),
        lambda: hs.Hessian(base()) + hs.GaussNewton(base()),
    ),
    "the layer Hessian of other weights": (
        lambda: hs.layer_hessian(wide(0), "0"),
        lambda: hs.layer_hessian(wide(1), "0"),
    ),
    "another Kronecker factor": (
        lambda: Kronecker(random_matrix("a", 16), random_matrix("b", 16)),
        lambda: Kronecker(random_matrix("a", 16), random_matrix("c", 16)),
    ),
    "another dense matrix": (lambda: Dense(random_matrix("d", 260)), lambda: Dense(random_matrix("e", 260))),
    "other low-rank values": (
        lambda: LowRank(random_matrix("v", 260), torch.ones(260)),
        lambda: LowRank(random_matrix("v", 260), torch.full((260,), 1.001)),
    ),
    "another block of a diagonal": (
        lambda: BlockDiagonal([Dense(random_matrix("f", 130)), Dense(random_matrix("g", 130))]),
        lambda: BlockDiagonal([Dense(random_matrix("g", 130)), Dense(random_matrix("f", 130))]),
    ),
}


def wide(seed: int) -> hs.Problem:
    torch.manual_seed(seed)
    return of(nn.Sequential(nn.Linear(8, 30), nn.ReLU(), nn.Linear(30, 4)))


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_never_goes_on_with_another_operator(change: str, tmp_path: Path) -> None:
    before, after = CHANGES[change]
    whole = hs.eigenpairs(before(), k=3, resume=tmp_path)
    with pytest.raises(FileError, match=r"resume needs the same (operator|products).*choose another folder"):
        hs.eigenpairs(after(), k=3, resume=tmp_path)
    counted = hs.Counted(before())
    again = hs.eigenpairs(counted, k=3, resume=tmp_path)
    assert counted.count == 0
    np.testing.assert_array_equal(again.values, whole.values)


class Silent(Dense):
    """An operator whose author gave it no fingerprint."""

    fingerprint = "silent"


def test_products_are_compared_where_fingerprints_say_nothing(tmp_path: Path) -> None:
    hs.eigenpairs(Silent(random_matrix("s", 260)), k=2, resume=tmp_path)
    with pytest.raises(FileError, match="resume needs the same products"):
        hs.eigenpairs(Silent(random_matrix("s", 260) * 1.001), k=2, resume=tmp_path)
    # Rounding, as of another number of threads, is no other matrix.
    hs.eigenpairs(Silent(random_matrix("s", 260) * (1 + 1e-6)), k=2, resume=tmp_path)
