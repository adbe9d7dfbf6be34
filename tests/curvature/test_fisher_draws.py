"""Sampled Fisher matrices depend on the seed and the data, never on how the data was batched or what memory there was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import hesscope as hs
from hesscope.curvature.losses.row_draws import RowDraws
from hesscope.errors import InputError

DRAW = hs.Rng(3).torch()
X = torch.randn(40, 5, generator=DRAW, dtype=torch.float64)
TARGETS: dict[str, tuple[Any, torch.Tensor]] = {
    "cross-entropy": (nn.CrossEntropyLoss(), torch.randint(0, 3, (40,), generator=DRAW)),
    "squared error": (nn.MSELoss(), torch.randn(40, 3, generator=DRAW, dtype=torch.float64)),
    "binary": (nn.BCEWithLogitsLoss(), torch.rand(40, 3, generator=DRAW, dtype=torch.float64).round()),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def fisher(loss: Any, data: Any, **options: Any) -> torch.Tensor:
    return hs.Fisher(hs.Problem.of(network(), loss, data, **options), "mc", samples=2, rng=5).dense()


@pytest.mark.parametrize("name", TARGETS)
def test_draws_belong_to_examples(name: str) -> None:
    loss, y = TARGETS[name]
    whole = fisher(loss, (X, y))
    sizes = ([10] * 4, [1, 3, 36], [7] * 5 + [5])
    cut = [fisher(loss, list(zip(X.split(size), y.split(size), strict=True))) for size in sizes]
    starved = fisher(loss, list(zip(X.split(10), y.split(10), strict=True)), memory=0)
    for other in (*cut, starved, fisher(loss, (X, y), batch_size=6)):
        torch.testing.assert_close(other, whole, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(hs.Fisher(hs.Problem.of(network(), loss, (X, y)), "mc", samples=2, rng=6).dense(), whole)


def test_ignored_labels_move_no_draws_of_another_batching() -> None:
    loss, y = nn.CrossEntropyLoss(), TARGETS["cross-entropy"][1].clone()
    y[::7] = -100
    whole = fisher(loss, (X, y))
    torch.testing.assert_close(fisher(loss, list(zip(X.split(9), y.split(9), strict=True))), whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("columns", [1, 3, 4, 9])
def test_draws_of_rows_are_independent_and_of_their_laws(columns: int) -> None:
    draws = RowDraws(hs.Rng(1), 0)
    uniform, normal = draws.uniform(20_000 // columns, columns), draws.normal(20_000 // columns, columns)
    assert torch.equal(uniform[100:], RowDraws(hs.Rng(1), 100).uniform(20_000 // columns - 100, columns))
    assert len(torch.unique(uniform)) == uniform.numel()
    n = uniform.numel()
    assert abs(float(uniform.mean()) - 0.5) <= 4 / (12 * n) ** 0.5
    assert abs(float(normal.mean())) <= 4 / n**0.5
    assert abs(float(normal.square().mean()) - 1) <= 4 * (2 / n) ** 0.5
    following = (normal[1:] * normal[:-1]).mean()
    assert abs(float(following)) <= 4 / n**0.5


def rows_of(loss: Any, y: torch.Tensor) -> torch.Tensor:
    """The gradient of every example's own loss, by autograd."""
    model = network()
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(loss(model(X[i : i + 1]), y[i : i + 1]), parameters) for i in range(len(X))]
    return torch.stack([torch.cat([part.reshape(-1) for part in one]) for one in gradients])


def test_a_row_of_weight_w_counts_w_times() -> None:
    """Exact, sampled and empirical matrices mean the same by a weight: so many rows, not so much steeper ones."""
    weight = torch.tensor([1.0, 4.0, 0.25], dtype=torch.float64)
    _, y = TARGETS["cross-entropy"]
    found = hs.Fisher(hs.Problem.of(network(), nn.CrossEntropyLoss(weight), (X, y)), "empirical").dense()
    s = rows_of(nn.CrossEntropyLoss(), y)
    torch.testing.assert_close(found, (s * weight[y, None]).T @ s / weight[y].sum(), rtol=1e-12, atol=1e-14)

    binary, positive = TARGETS["binary"][1][:, :1], torch.tensor([9.0], dtype=torch.float64)
    narrow = nn.Sequential(network(), nn.Linear(3, 1, dtype=torch.float64))
    loss = nn.BCEWithLogitsLoss(pos_weight=positive)
    problem = hs.Problem.of(narrow, loss, (X, binary))
    f = narrow(X)
    slopes = torch.stack(
        [
            torch.cat([g.reshape(-1) for g in torch.autograd.grad(one, list(narrow.parameters()), retain_graph=True)])
            for one in f[:, 0]
        ]
    )
    counts = torch.where(binary > 0.5, positive, torch.ones(1, dtype=torch.float64))
    s = (torch.sigmoid(f.detach()) - binary) * slopes
    torch.testing.assert_close(hs.Fisher(problem, "empirical").dense(), (counts * s).T @ s / 40, rtol=1e-12, atol=1e-14)


OTHERS: dict[str, tuple[nn.Module, Any, torch.Tensor]] = {
    # Linear in log-probabilities, so that its Gauss-Newton matrix is zero and the Fisher matrix is not.
    "log-probabilities": (nn.LogSoftmax(1), nn.NLLLoss(), TARGETS["cross-entropy"][1]),
    "probabilities": (nn.Sigmoid(), nn.BCELoss(), TARGETS["binary"][1]),
    "rates": (nn.Softplus(), nn.PoissonNLLLoss(log_input=False), TARGETS["binary"][1]),
    "Huber": (nn.Identity(), nn.HuberLoss(delta=0.1), TARGETS["squared error"][1]),
    "divergence": (nn.LogSoftmax(1), nn.KLDivLoss(reduction="batchmean"), TARGETS["binary"][1].softmax(1)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_loss_has_no_fisher_matrix_that_is_its_gauss_newton_matrix(name: str) -> None:
    last, loss, y = OTHERS[name]
    problem = hs.Problem.of(nn.Sequential(network(), last), loss, (X, y))
    exact = hs.Fisher(problem, "exact")
    asked: list[Any] = [exact.dense, lambda: hs.trace(exact), lambda: hs.diagonal(exact), lambda: hs.block_norms(exact)]
    for ask in (*asked, hs.Fisher(problem, "mc").dense):
        with pytest.raises(InputError, match="a known log-likelihood; got another loss"):
            ask()
    assert hs.GaussNewton(problem).dense().isfinite().all()
