"""A product that breaks off leaves nothing behind that the next one could take for the whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import hesscope as hs

COUNTDOWN = [-1]  # of calls; not the model's own, as every pass begins with what the model had


class Stumbles(nn.Module):
    """Raises once, at a given call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        COUNTDOWN[0] -= 1
        if COUNTDOWN[0] == 0:
            raise KeyboardInterrupt
        out: Tensor = torch.tanh(self.layer(x))
        return out


def _broken_off(make: Callable[[], hs.LinearOperator]) -> hs.LinearOperator:
    """The first operator whose product is interrupted."""
    while True:
        op = make()
        try:
            op @ torch.ones(15).double()
        except KeyboardInterrupt:
            return op


@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("kind", ["hessian", "gauss-newton", "fisher"])
def test_a_product_after_one_that_broke_off_is_over_all_data(kind: str, memory: int | None) -> None:
    torch.manual_seed(0)
    model = Stumbles().double()
    batches = [(torch.randn(n, 4).double(), torch.randn(n, 3).double()) for n in (5, 4, 3)]
    make = {"hessian": hs.Hessian, "gauss-newton": hs.GaussNewton, "fisher": hs.Fisher}[kind]
    truth = make(hs.Problem.of(model, "mse", batches, memory=memory)).dense()
    problem = hs.Problem.of(model, "mse", batches, memory=memory)
    problem.loss_value()
    ready = make(problem)
    ready.proofs()
    for call in range(1, 6):
        COUNTDOWN[0] = call
        op = _broken_off(lambda: make(problem))
        assert torch.allclose(op.dense(), truth, rtol=1e-12)
    assert problem.memory_budget.used >= 0
