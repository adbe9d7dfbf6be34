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
VALUES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "huber": F.huber_loss,
}


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


def truth(problem: hs.Problem, loss: str) -> Tensor:
    """Float64 central differences of torch's gradient, column by column, by Richardson extrapolation of two steps."""
    x, y = next(iter(problem.batches))
    names, pieces = problem.space.names, [problem.parameters[name].detach() for name in problem.space.names]
    here = torch.cat([piece.reshape(-1) for piece in pieces])

    def gradient(at: Tensor) -> Tensor:
        parts = at.split([piece.numel() for piece in pieces])
        leaves = [p.view_as(piece).requires_grad_() for p, piece in zip(parts, pieces, strict=True)]
        outputs = torch.func.functional_call(problem.model, dict(zip(names, leaves, strict=True)), (x,))
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(VALUES[loss](outputs, y), leaves)])

    columns = []
    for e in torch.eye(len(here), dtype=torch.float64):
        halves = [(gradient(here + s * e) - gradient(here - s * e)) / (2 * s) for s in (2e-4, 1e-4)]
        columns.append((4 * halves[1] - halves[0]) / 3)
    return torch.stack(columns, 1)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_our_methods_are_right_or_say_no(operation: str) -> None:
    for loss in VALUES:
        problem = problem_of(operation, loss)
        expected = truth(problem, loss)
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
    expected = truth(problem, "mse")
    x, y = next(iter(problem.batches))

    def loss(flat: Tensor) -> Tensor:
        state = dict(zip(problem.space.names, problem.space.unpack(flat), strict=True))
        return F.mse_loss(torch.func.functional_call(problem.model, state, (x,)), y)

    theirs = torch.func.hessian(loss)(problem.space.pack(list(problem.parameters.values()), x.reshape(-1)))
    error = float((theirs - expected).norm() / expected.norm())
    assert (error > 1e-2) == wrong
    assert wrong or error < 1e-6
