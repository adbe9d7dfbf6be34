"""`hesscope reproduce`: what is said before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hesscope.cli import main


@pytest.mark.parametrize(("size", "told"), [("paper", True), ("quick", False)])
def test_the_time_is_told_at_the_papers_size_however_short(
    size: str, told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings make the run short; what is told is that of the size before them."""
    small = ("--set", "width=3", "samples=4")
    main(["reproduce", "cracking.fig1", "--size", size, *small, "--out", str(tmp_path)])
    said = "".join(capsys.readouterr())
    assert (f"cracking.fig1 at {size} size takes about 4 seconds before --set" in said) == told
