"""What property tests draw is theirs: the same alone, after others, and whatever else is loaded."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import DEEP


def drawn() -> list[float]:
    found: list[float] = []

    @settings(max_examples=200, derandomize=True)
    @given(st.floats(0.05, 4.0))
    def note(x: float) -> None:
        found.append(x)

    note()
    return found


@pytest.mark.skipif(DEEP, reason="the deep run draws anew")
def test_other_modules_change_no_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = drawn()
    numbers = ", ".join(str(0.1 + i / 1000) for i in range(999))
    (tmp_path / "full_of_numbers.py").write_text(f"NUMBERS = ({numbers})")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("full_of_numbers")
    assert drawn() == before


@pytest.mark.parametrize("turn", range(2))
def test_draws_from_the_global_generator_begin_anew_in_every_test(turn: int) -> None:
    """Whatever ran before in this worker, which is a matter of load."""
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(1))), turn
