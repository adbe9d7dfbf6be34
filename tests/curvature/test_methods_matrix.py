"""Operation x method: which second-derivative method is right, raises or is silently wrong, on this torch.

Hesscope uses the methods of the first group only. The second group documents why the others are not used: a cell
that changes (a torch release that mends or breaks one) turns this test red, and the choice is made anew.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs

torch.manual_seed(0)
OPERATIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear+tanh": (lambda: nn.Tanh(), (6, 4)),
    "relu": (lambda: nn.ReLU(), (6, 4)),
    "gelu": (lambda: nn.GELU(), (6, 4)),
    "softmax": (lambda: nn.Softmax(-1), (6, 4)),
    "layer-norm": (lambda: nn.LayerNorm(4), (6, 4)),
    "instance-norm": (lambda: nn.InstanceNorm1d(4, affine=True), (6, 4, 4)),
    "group-norm": (lambda: nn.GroupNorm(2, 4), (6, 4)),
    "batch-norm eval": (lambda: nn.BatchNorm1d(4).eval(), (6, 4)),
    "rms-norm": (lambda: nn.RMSNorm(4), (6, 4)),
    "attention": (lambda: Attention(), (3, 4, 4)),
}
LOSSES = ("cross_entropy", "mse", "huber")


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


def problem_of(operation: str, loss: str) -> hs.Problem:
    make, shape = OPERATIONS[operation]
    torch.manual_seed(1)
    middle = make()
    for p in middle.parameters():
        nn.init.normal_(p, 1.0, 0.3)
    model = nn.Sequential(nn.Linear(shape[-1], 4), middle, nn.Flatten(), nn.LazyLinear(3)).double()
    x = torch.randn(shape).double()
    model(x)
    y = torch.arange(shape[0]) % 3 if loss == "cross_entropy" else torch.randn(shape[0], 3).double()
    return hs.Problem.of(model, loss, (x, y))


def truth(problem: hs.Problem) -> Tensor:
    """Float64 central differences of the gradient, column by column, by Richardson extrapolation of two steps."""
    columns = []
    for j in range(problem.space.size):
        e = torch.zeros(problem.space.size).double()
        e[j] = 1.0
        halves = []
        for step in (2e-4, 1e-4):
            moved = [
                {
                    n: problem.parameters[n] + s
                    for n, s in zip(problem.space.names, problem.space.unpack(sign * step * e), strict=True)
                }
                for sign in (1, -1)
            ]
            halves.append(
                (problem.at(moved[0], partial=True).gradient() - problem.at(moved[1], partial=True).gradient())
                / (2 * step)
            )
        columns.append((4 * halves[1] - halves[0]) / 3)
    return torch.stack(columns, 1)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_our_methods_are_right_or_say_no(operation: str) -> None:
    for loss in LOSSES:
        problem = problem_of(operation, loss)
        expected = truth(problem)
        assert float((hs.Hessian(problem, method="kept").dense() - expected).norm() / expected.norm()) < 1e-6
        try:
            batched = hs.Hessian(problem, method="batched").dense()
        except hs.errors.DerivativeError:
            assert operation in ("group-norm", "instance-norm", "batch-norm eval"), operation
        else:
            assert float((batched - expected).norm() / expected.norm()) < 1e-6


@pytest.mark.parametrize(
    ("operation", "wrong"), [("layer-norm", True), ("instance-norm", True), ("linear+tanh", False)]
)
def test_why_torch_func_hessian_is_not_used(operation: str, wrong: bool) -> None:
    problem = problem_of(operation, "mse")
    expected = truth(problem)
    x, y = next(iter(problem.batches))

    def loss(flat: Tensor) -> Tensor:
        state = dict(zip(problem.space.names, problem.space.unpack(flat), strict=True))
        return F.mse_loss(torch.func.functional_call(problem.model, state, (x,)), y)

    theirs = torch.func.hessian(loss)(problem.space.pack(list(problem.parameters.values()), x.reshape(-1)))
    error = float((theirs - expected).norm() / expected.norm())
    assert (error > 1e-2) == wrong
    assert wrong or error < 1e-6
