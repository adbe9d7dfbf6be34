"""Trainings that take hours at the paper's size: killed in the middle, they go on and end where they would have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hesscope.experiments.cracking._ensemble import trained
from hesscope.experiments.dong2025._measured import gaussian_data, network, problem_of, train
from hesscope.experiments.long_runs import keeping
from hesscope.rng import Rng


def _adam() -> list[Any]:
    rng = Rng(0)
    x, y = gaussian_data(2, 3, 4, rng)
    losses: list[float] = []
    problem = problem_of(network((4, 5, 3), rng), "CE", x, y, 3)
    kept = train(problem, 40, 1e-2, (0.0, 0.25, 1.0), 4, rng, losses)
    return [torch.tensor(losses), *(torch.tensor(step) for step, _ in kept), *(p for _, w in kept for p in w.values())]


def _families() -> list[Any]:
    return list(trained(Rng(0), "muP", (2, 3, 2), 4, 10, 500, relu=True).end)


@pytest.mark.parametrize("work", [_adam, _families])
def test_a_training_that_was_killed_goes_on_where_it_was(work: Callable[[], list[Any]], tmp_path: Path) -> None:
    told: list[str] = []

    def killed(text: str) -> None:
        told.append(text)
        if len(told) == 8:
            raise KeyboardInterrupt

    expected = work()
    with pytest.raises(KeyboardInterrupt), keeping(tmp_path, killed):
        work()
    before = len(told)
    with keeping(tmp_path, told.append):
        found = work()
    assert before == 8
    assert len(told) == 20, "the first eight looks are not taken again"
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
