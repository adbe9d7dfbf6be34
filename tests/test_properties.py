"""Property tests draw the same examples whatever was loaded before them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties import DEEP, examples


def _drawn() -> list[float]:
    seen: list[float] = []

    @examples(60)
    @given(st.floats(0.0, 1e9))
    def draw(x: float) -> None:
        seen.append(x)

    draw()
    return seen


@pytest.mark.skipif(DEEP, reason="deep runs draw anew")
def test_draws_do_not_depend_on_the_modules_that_are_loaded(tmp_path: Path) -> None:
    before = _drawn()
    file = tmp_path / "odd_numbers.py"
    file.write_text("".join(f"X{i} = {1000.5 + i}\n" for i in range(200)))
    spec = importlib.util.spec_from_file_location("odd_numbers", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "odd_numbers", module)
        spec.loader.exec_module(module)
        assert _drawn() == before
