"""Documentation that runs: every Python block, every command line, and the site itself."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from hesscope import __version__
from hesscope.cli.command_line import parse

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "gallery" not in p.parts)]
NEEDED = {"huggingface.md": "transformers"}  # not in this environment: `make test-integrations` runs these pages
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.M | re.S)


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(page.read_text()) if kind == language]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: str(p.relative_to(ROOT)))
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in NEEDED:
        pytest.importorskip(NEEDED[page.name])
    monkeypatch.chdir(tmp_path)
    # Port 0 is any that is free.
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    space: dict[str, object] = {"__name__": "page"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, code in enumerate(blocks(page, "python")):
            compiled = compile(code, f"{page.name}[{number}]", "exec")
            if "[...]" not in code:  # a form to fill in, not an example
                exec(compiled, space)


COMMANDS = [
    (page, line.split("  #")[0])
    for page in PAGES
    for body in blocks(page, "sh")
    for line in body.splitlines()
    if line.startswith("hesscope ")
]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=lambda value: value if isinstance(value, str) else value.stem)
def test_command_lines_parse(page: Path, line: str) -> None:
    parse(shlex.split(line)[1:])


def test_readme_starts_with_two_commands_and_a_short_example() -> None:
    text = (ROOT / "README.md").read_text()
    first_block, second_block = BLOCK.findall(text)[:2]
    assert [line.split()[:2] for line in first_block[1].splitlines()] == [["make", "demo"], ["make", "test"]]
    code = [line for line in second_block[1].splitlines() if line.strip()]
    assert second_block[0] == "python"
    assert len(code) <= 11


def test_every_command_is_documented() -> None:
    from hesscope.cli.command_line import COMMANDS as commands

    text = (ROOT / "docs/cli.md").read_text()
    assert all(f"hesscope {name}" in text for name in commands)


def test_site_builds_in_strict_mode(tmp_path: Path) -> None:
    """In the folder of its version, beside an older one; pages fetch nothing, and formulas need no script."""
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install -e '.[dev]'")
    (tmp_path / "0.0.9").mkdir()
    (tmp_path / "0.0.9/index.html").write_text("old")
    command = [sys.executable, "docs/_site/versions.py", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [entry["version"] for entry in listed] == [__version__, "0.0.9"]
    assert [entry["aliases"] for entry in listed] == [["latest"], []]
    assert f"url={__version__}/index.html" in (tmp_path / "index.html").read_text()
    assert (tmp_path / "0.0.9/index.html").read_text() == "old"
    site = tmp_path / __version__
    built = {path.name for path in (site / "reference").glob("*.html")}
    assert {"linalg.html", "curvature.html", "analyze.html"} <= built
    assert "eigenpairs" in (site / "reference/linalg.html").read_text()
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    fetched = re.compile(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="https?:', re.I)
    assert [path.name for path, text in pages.items() if fetched.search(text)] == []
    assert all(f"Hesscope {__version__}" in text for path, text in pages.items() if path.name != "404.html")
    theory = pages[site / "theory/glm.html"]
    assert "<math" in theory
    assert "arithmatex" not in theory


def _resolves(dotted: str) -> bool:
    """Whether `hesscope.a.b.c` is a module, or what can be reached from one."""
    import importlib

    parts = dotted.split(".")
    found = importlib.import_module(parts[0])
    for end, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(parts[:end]))
            except ImportError:
                return False
        found = getattr(found, part)
    return True


def _names(page: Path) -> set[str]:
    text = page.read_text()
    full = re.findall(r"\bhesscope(?:\.[A-Za-z_]\w*)+", text)
    short = [f"hesscope.{name}" for name in re.findall(r"\bhs\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", text)]
    return {name for name in [*full, *short] if not name.endswith((".io", ".md", ".py"))}


@pytest.mark.parametrize("page", [p for p in PAGES if _names(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_names_exist(page: Path) -> None:
    assert sorted(name for name in _names(page) if not _resolves(name)) == []


PLACE = re.compile(r"`((?:src/hesscope/|tests/|docs/|benchmarks/|[a-z_]+/)[\w/.-]*?\.(?:py|md|txt))`")


@pytest.mark.parametrize("page", [p for p in PAGES if PLACE.search(p.read_text())], ids=lambda p: p.stem)
def test_files_exist(page: Path) -> None:
    roots = (ROOT, ROOT / "src/hesscope", ROOT / "tests")
    named = set(PLACE.findall(page.read_text()))
    assert sorted(name for name in named if not any((root / name).exists() for root in roots)) == []
