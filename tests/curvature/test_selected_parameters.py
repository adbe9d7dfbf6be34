"""A problem in some of the parameters shares what its values tell with the one it was selected from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hesscope as hs
from hesscope.layers import facts_of


def _problem() -> hs.Problem:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))
    return hs.Problem.of(model, "cross_entropy", (torch.randn(40, 3), torch.arange(40) % 2))


def test_what_values_tell_is_found_once_for_all_selections(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, plain, passes = _problem(), nn.Sequential.__call__, [0]
    parts = [problem.select(globs) for globs in ("0.*", "2.*", "*.weight")]
    facts = facts_of(parts[0])
    assert parts[1].divisible

    def counted(model: nn.Sequential, x: Any) -> Any:
        passes[0] += 1
        return plain(model, x)

    monkeypatch.setattr(nn.Sequential, "__call__", counted)
    for part in (*parts, problem, parts[0].select("0.weight")):
        assert facts_of(part) is facts
        assert part.divisible
        assert part.totals is problem.totals
        assert part.probe.parameters.keys() == part.parameters.keys()
    assert passes == [0]


def test_blocks_of_selections_are_those_of_the_whole() -> None:
    problem = _problem()
    whole = hs.Hessian(problem).dense().double()
    for globs in ("0.*", "2.weight"):
        places = problem.space.indices(globs)
        part = hs.dense_hessian(problem.select(globs))
        assert torch.allclose(torch.as_tensor(part).double(), whole[places][:, places], atol=1e-6)


def test_other_values_share_nothing() -> None:
    problem = _problem()
    part = problem.select("2.*")
    moved: dict[str, Tensor] = {name: 2 * tensor for name, tensor in part.parameters.items()}
    assert part.at(moved).loss_value() != part.loss_value()
    assert part.at(moved).selected_from is None
    assert part.subset(8).totals[1] == 8
    assert part.cast(torch.float64).selected_from is None
