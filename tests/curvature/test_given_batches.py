"""Batches that decide something for all of their examples are used as they were given, also where others would be joined or cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from hesscope.errors import InputError


class Deciding(nn.Module):
    """Two layers, of which the first runs twice in batches that are so."""

    def __init__(self, decides: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.a, self.c, self.decides = nn.Linear(4, 4), nn.Linear(4, 3), decides

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.a(x))
        return self.c(torch.tanh(self.a(h)) if self.decides(x) else h)


DECIDES: dict[str, Callable[[Tensor], bool]] = {
    "the first row": lambda x: bool(x[0, -1] == 4),
    "the number of examples": lambda x: len(x) == 5,
    "the largest entry": lambda x: bool(x.max() > 3.9),
}


def batches() -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    found = [(torch.randn(n, 4, dtype=torch.float64), torch.randint(0, 3, (n,))) for n in (6, 6, 5, 6, 6)]
    found[3][0][0, -1] = 4.0
    return found


def truth(model: nn.Module, data: list[tuple[Tensor, Tensor]]) -> Tensor:
    loss = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in data) / sum(len(y) for _, y in data)
    wrt = list(model.parameters())
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, wrt, create_graph=True)])
    rows = [torch.autograd.grad(g, wrt, retain_graph=True) for g in gradient]
    return torch.stack([torch.cat([part.reshape(-1) for part in row]) for row in rows])


@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("name", DECIDES)
def test_every_number_is_that_of_the_batches_given(name: str, memory: float | None) -> None:
    torch.manual_seed(0)
    model, data = Deciding(DECIDES[name]).double(), batches()
    expected = truth(model, data)

    def problem() -> hs.Problem:
        return hs.Problem.of(model, "cross_entropy", data, memory=memory)

    size = float(expected.norm())
    assert float((hs.Hessian(problem()).dense() - expected).norm()) <= 1e-12 * size
    assert float((hs.dense_hessian(problem()) - expected).norm()) <= 1e-12 * size
    assert float(hs.trace(problem()).value) == pytest.approx(float(expected.trace()), rel=1e-12)
    diagonal = torch.as_tensor(hs.diagonal(problem()).value)
    assert float((diagonal - expected.diagonal()).norm()) <= 1e-12 * size
    both = hs.Hessian(problem()) - hs.GaussNewton(problem())
    rest = hs.FunctionalHessian(problem())
    v = torch.randn(len(expected), dtype=torch.float64)
    assert float((both @ v - rest @ v).norm()) <= 1e-12 * size * float(v.norm())
    norms = hs.block_norms(problem(), "tensor")
    assert float((norms.norms**2).sum()) == pytest.approx(size**2, rel=1e-11)


def test_a_loss_that_is_no_fixed_function_is_refused_all_the_same() -> None:
    torch.manual_seed(0)
    calls = [0]

    def decides(x: Tensor) -> bool:
        calls[0] += 1
        return calls[0] > 40

    problem = hs.Problem.of(Deciding(decides).double(), "cross_entropy", batches(), memory=0)
    H = hs.Hessian(problem)

    def many() -> None:
        for _ in range(40):
            H @ torch.ones(H.shape[1], dtype=torch.float64)

    with pytest.raises(InputError, match="fixed function"):
        many()
