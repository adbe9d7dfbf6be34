"""What is in the way of a command's files is found before it computes anything, and stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hesscope.cli import main

Capture = pytest.CaptureFixture[str]

FOREIGN = {
    "analyze": ("report.html", "analysis.json", "analysis.npz", "figures/counts.png", "figures/blocks-layer.pdf"),
    "demo": ("report.html", "analysis.json", "figures/history.svg"),
    "spectrum": ("spectrum.json", "spectrum.npz", "spectrum.pdf"),
    "layers": ("layers.json", "layers.png"),
    "blocks": ("blocks-layer.json", "blocks-layer.svg"),
    "decouple": ("decouple-0.json", "decoupling.png"),
    "landscape": ("landscape.json", "landscape-1.png"),
    "stability": ("stability.json", "stability.png"),
    "bound": ("bound-local.json",),
    "reproduce": ("cracking-fig1.json",),
}


@pytest.mark.parametrize(("name", "file"), [(name, file) for name, files in FOREIGN.items() for file in files])
def test_a_foreign_file_is_found_before_anything_is_computed(
    name: str, file: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text("def make_problem():\n    raise SystemExit('it began to compute')\n")
    monkeypatch.setattr("hesscope.cli.commands.demo.from_preset", lambda _: pytest.fail("it began to compute"))
    mine = tmp_path / "out" / file
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    source = {"demo": [], "reproduce": ["cracking.fig1"]}.get(name, ["slow.py:make_problem"])
    more = {"bound": ["--init", "before.pt"], "stability": ["--optimizer", "SGD:lr=0.1"]}.get(name, [])
    assert main([name, *source, *more, "--out", "out"]) == 3
    said = capsys.readouterr().err
    assert mine.name in said
    assert "only replaces files that it wrote itself" in said
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine"
