"""What property tests draw is theirs: the same alone, after others, and whatever else is loaded."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
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
