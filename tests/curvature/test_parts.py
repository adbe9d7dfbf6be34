"""Every batch against its examples in parts, also where what the whole gives is known from another pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import hesscope as hs
from hesscope.curvature.losses.base import OutputLoss
from hesscope.curvature.problem import ScalarLoss
from hesscope.curvature.proofs.independence import parts_add_up
from hesscope.layers import capture
from hesscope.layers.shared_captures import captured, captures_shared, shared_terms

SIZE = 64


class Meeting(nn.Module):
    """A linear map of x and a little of what another example of the batch is."""

    def __init__(self, other: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(3, 2).double(), other

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x + 0.01 * self.other(x))
        return out


def _swapped_halves(x: Tensor) -> Tensor:
    return x.roll(len(x) // 2, 0)  # the two views of a contrastive batch


def _only_a_rare_one(x: Tensor) -> Tensor:
    return (x[:, :1] > 50).double().sum(0, keepdim=True) * torch.ones_like(x)


MEETINGS = {
    "neighbour": lambda x: x.roll(1, 0),
    "next but one": lambda x: x.roll(2, 0),
    "two views": _swapped_halves,
    "all before": lambda x: x.cumsum(0),
    "its place": lambda x: torch.arange(len(x)).double()[:, None] * torch.ones_like(x),
    "the batch": lambda x: x.mean(0, keepdim=True).expand_as(x),
    "a rare one": _only_a_rare_one,
    "what the first is": lambda x: (x[:1, :1] - 60.0).abs().expand_as(x),
}


def _problem(other: Callable[[Tensor], Tensor]) -> hs.Problem:
    torch.manual_seed(0)
    x = torch.randn(SIZE, 3, dtype=torch.float64)
    x[17, 0] = 60.0
    return hs.Problem.of(Meeting(other), "cross_entropy", [(x, torch.arange(SIZE) % 2)])


def _add_up(problem: hs.Problem, known: bool) -> bool:
    def evaluate(batch: object) -> OutputLoss | ScalarLoss:
        return problem.evaluate(batch, problem.parameters)

    return parts_add_up(evaluate, problem.batches, evaluate if known else None)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", MEETINGS)
def test_examples_that_meet_by_any_rule_are_seen(name: str, known: bool) -> None:
    assert not _add_up(_problem(MEETINGS[name]), known)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("size", [2, 3, 12])
def test_any_two_examples_are_taken_apart(size: int, known: bool) -> None:
    """One example sees one other, wherever the two are."""

    def seen(x: Tensor) -> Tensor:
        who, whom = (x[:, :1] > 50).double(), (x[:, 1:2] > 50).double()
        return 100 * who * (whom * x[:, 2:]).sum(0)

    for one in range(size):
        for other in set(range(size)) - {one}:
            torch.manual_seed(0)
            x = torch.randn(size, 3, dtype=torch.float64)
            x[one, 0], x[other, 1] = 60.0, 60.0
            assert not _add_up(hs.Problem.of(Meeting(seen), "cross_entropy", [(x, torch.arange(size) % 2)]), known)


@pytest.mark.parametrize("known", [True, False])
def test_examples_that_do_not_meet_are_not_accused(known: bool) -> None:
    assert _add_up(_problem(torch.zeros_like), known)


@pytest.mark.parametrize("known", [True, False])
def test_rows_that_the_loss_leaves_out_do_not_matter(known: bool) -> None:
    torch.manual_seed(0)
    x, y = torch.randint(0, 5, (8, 6)), torch.randint(0, 5, (8, 6))
    y[0, :4] = y[3, 1:] = -100
    model = nn.Sequential(nn.Embedding(5, 4), nn.Tanh(), nn.Linear(4, 5))
    assert _add_up(hs.Problem.of(model, "cross_entropy", (x, y), forward=lambda m, b: (m(b[0]).mT, b[1])), known)


def test_a_capture_is_made_once_for_all_who_ask_and_gives_its_memory_back() -> None:
    problem = _problem(torch.zeros_like)
    batch = next(iter(problem.batches))
    alone = capture(problem, batch, ["linear"])
    used = problem.memory_budget.used
    with captures_shared(problem):
        first, again = captured(problem, batch), captured(problem, batch, ["linear"])
        known = shared_terms(problem)
        assert known is not None
        assert again.terms is first.terms is known(batch)
        assert problem.memory_budget.used > used
        assert captured(problem, tuple(t[:2] for t in batch)).terms is not first.terms
        for mine, theirs in zip(again.gradients(), alone.gradients(), strict=True):
            assert torch.equal(mine, theirs)
        assert captured(problem, batch, []).layers == []
    assert problem.memory_budget.used == used
    assert captured(problem, batch).terms is not first.terms
    assert shared_terms(problem) is None


def test_a_capture_that_takes_too_much_memory_is_not_kept() -> None:
    torch.manual_seed(0)
    batch = torch.randn(SIZE, 3), torch.arange(SIZE) % 2
    problem = hs.Problem.of(nn.Linear(3, 2), "cross_entropy", [batch], memory=0)
    with captures_shared(problem):
        own = next(iter(problem.batches))
        assert captured(problem, own).terms is not captured(problem, own).terms
        assert problem.memory_budget.used == 0
