from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hesscope as hs
from hesscope.errors import BudgetExceeded, InputError


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
