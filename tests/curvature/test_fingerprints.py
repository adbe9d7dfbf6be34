"""Matrices that a resumed run must not mix up have different fingerprints; the same matrix has the same one again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs


def network(change: str = "") -> nn.Module:
    torch.manual_seed(0)
    first, norm, last = nn.Linear(4, 6).double(), nn.BatchNorm1d(6).double(), nn.Linear(6, 3).double()
    assert norm.running_mean is not None
    with torch.no_grad():
        if change == "neurons permuted":
            order = torch.tensor([1, 0, 2, 3, 4, 5])
            first.weight.copy_(first.weight[order])
            first.bias.copy_(first.bias[order])
            last.weight.copy_(last.weight[:, order])
        if change == "neurons with the other sign":
            first.weight.neg_()
            first.bias.neg_()
            last.weight.neg_()
        if change == "last bit":
            first.bias[0] = torch.nextafter(first.bias[0], torch.tensor(torch.inf).double())
        if change == "buffers":
            norm.running_mean.add_(1e-9)
    return nn.Sequential(first, norm, nn.Tanh(), last).eval()


def problem(change: str = "", loss: object = "cross_entropy", data: str = "") -> hs.Problem:
    x, y = torch.randn(12, 4, generator=torch.Generator().manual_seed(1)).double(), torch.arange(12) % 3
    if data == "reordered":
        x, y = x.flip(0), y.flip(0)
    if data == "last bit":
        x[3, 2] = torch.nextafter(x[3, 2], torch.tensor(torch.inf).double())
    return hs.Problem.of(network(change), loss, (x, y))


MATRICES: dict[str, Callable[[], hs.LinearOperator]] = {
    "hessian": lambda: hs.Hessian(problem()),
    "neurons permuted": lambda: hs.Hessian(problem("neurons permuted")),
    "neurons with the other sign": lambda: hs.Hessian(problem("neurons with the other sign")),
    "last bit of a parameter": lambda: hs.Hessian(problem("last bit")),
    "buffers": lambda: hs.Hessian(problem("buffers")),
    "last bit of the data": lambda: hs.Hessian(problem(data="last bit")),
    "reordered data": lambda: hs.Hessian(problem(data="reordered")),
    "sum": lambda: hs.Hessian(problem(loss=nn.CrossEntropyLoss(reduction="sum"))),
    "smoothing": lambda: hs.Hessian(problem(loss=nn.CrossEntropyLoss(label_smoothing=0.1))),
    "gauss-newton": lambda: hs.GaussNewton(problem()),
    "functional": lambda: hs.FunctionalHessian(problem()),
    "difference": lambda: hs.Hessian(problem()) - hs.GaussNewton(problem()),
    "exact": lambda: hs.Fisher(problem(), "exact"),
    "empirical": lambda: hs.Fisher(problem(), "empirical"),
    "sampled": lambda: hs.Fisher(problem(), "mc"),
    "two samples": lambda: hs.Fisher(problem(), "mc", samples=2),
    "another seed": lambda: hs.Fisher(problem(), "mc", rng=hs.Rng(1)),
    "block": lambda: hs.Hessian(problem()).block("0.*"),
    "another block": lambda: hs.Hessian(problem()).block("0.*", "3.*"),
    "jacobian": lambda: hs.Jacobian(problem()),
}


def test_every_matrix_has_its_own_fingerprint() -> None:
    found = {name: make().fingerprint for name, make in MATRICES.items()}
    same = [(a, b) for a, b in combinations(found, 2) if found[a] == found[b]]
    assert same == []


class Focal(nn.CrossEntropyLoss):
    """A loss of one's own, by a torch loss's name."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(outputs, targets) ** 2


LOSSES: dict[str, Callable[[], hs.LinearOperator]] = {
    "by example": lambda: hs.Hessian(problem(loss=lambda f, t: F.cross_entropy(f, t, reduction="none"))),
    "subclass": lambda: hs.Hessian(problem(loss=Focal(reduction="sum"))),
    "sum and count": lambda: hs.Hessian(problem(loss=lambda model, batch: (model(batch[0]).square().sum(), 3))),
}


def test_the_same_matrix_is_recognised() -> None:
    """In another process, too, where objects lie elsewhere in memory."""
    for name, make in (MATRICES | LOSSES).items():
        first, again = make(), make()
        assert first.fingerprint == again.fingerprint, name
        assert " at 0x" not in first.fingerprint, name
